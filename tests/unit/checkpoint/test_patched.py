import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from ghosted_core import load_patched, verify_checkpoint
from ghosted_core.checkpoint.manifest import file_entry
from ghosted_core.checkpoint.modeling_ghosted import BoundaryOperator
from ghosted_core.errors import CheckpointError, UnsafeModelError
from ghosted_core.model.surgery import repaired_model
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import NullRecorder
from tests.jobs import tiny_spec

TOKENS = torch.arange(3, 40)[None]


def make(model: Path, text: Path, out: Path, **changes: Any) -> Path:
    spec = tiny_spec(model, text, **({"remove": [0, 2, 3, 5]} | changes))
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


@pytest.fixture
def checkpoint(tiny_folder: Path, text_file: Path, tmp_path: Path) -> Path:
    """A repaired checkpoint with operators before layer 0, in the middle and at the end."""
    return make(tiny_folder, text_file, tmp_path / "out")


@pytest.fixture(autouse=True)
def own_modules_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a checkpoint's code here before it runs it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


def in_memory(source: Path, checkpoint: Path) -> torch.nn.Module:
    """The same model without a detour over the file's config: source weights, stored operators."""
    dense = LlamaForCausalLM.from_pretrained(source).eval()
    plan = PruningPlan.from_removed([0, 2, 3, 5], layer_count=6)
    stored = load_file(checkpoint / "model.safetensors")
    sites = ["model.layers.0", "model.layers.1", "model.norm"]
    matrices = [stored[f"{site}.ghosted_operator.correction"] for site in sites]
    return repaired_model(dense, plan, dict(zip(plan.boundaries, matrices, strict=True)))


@torch.no_grad()
def test_every_way_of_loading_gives_the_same_logits(tiny_folder: Path, checkpoint: Path) -> None:
    """The library, and transformers with trust_remote_code, answer as the model in memory did."""
    expected = in_memory(tiny_folder, checkpoint)(TOKENS).logits
    assert torch.equal(load_patched(checkpoint)(TOKENS).logits, expected)
    trusted = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
    assert torch.equal(trusted(TOKENS).logits, expected)


@torch.no_grad()
def test_the_operator_says_the_same_of_one_token_and_of_many() -> None:
    """x + x M whatever the shape and the order in memory, which loading makes the fast one."""
    torch.manual_seed(0)
    operator, rows = BoundaryOperator(8), torch.randn(2, 3, 8)
    operator.correction.data = torch.randn(8, 8)
    expected = rows + rows @ operator.correction.detach()
    for _ in range(2):
        torch.testing.assert_close(operator(rows), expected)
        torch.testing.assert_close(operator(rows[:1, :1]), expected[:1, :1])
        operator.lay_out()
    assert operator.correction.stride() == (1, 8)


def test_every_operator_lies_as_its_kernels_read_it_fastest(tiny_folder: Path, checkpoint: Path) -> None:
    """In memory, from a file, and through transformers; in the file it lies as any tensor."""
    trusted = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
    for model in (in_memory(tiny_folder, checkpoint), load_patched(checkpoint), trusted):
        found = [value for name, value in model.named_parameters() if "ghosted_operator" in name]
        assert [value.stride() for value in found] == [(1, found[0].shape[0])] * 3


def test_cached_generation_equals_uncached(checkpoint: Path) -> None:
    """After a reload too."""
    model = load_patched(checkpoint)
    cached, uncached = (
        model.generate(TOKENS, max_new_tokens=12, do_sample=False, temperature=None, use_cache=use)
        for use in (True, False)
    )
    assert torch.equal(cached, uncached)


def test_without_trust_the_auto_classes_raise(checkpoint: Path) -> None:
    """Nobody gets the model without its operators by accident."""
    for trust in (None, False):
        with pytest.raises((ValueError, OSError), match="custom code"):
            AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=trust)


def test_the_stock_class_refuses(checkpoint: Path) -> None:
    """LlamaForCausalLM asked by name does not drop the operators: it raises, and says what to do."""
    with pytest.raises(Exception, match="trust_remote_code=True"):
        LlamaForCausalLM.from_pretrained(checkpoint)


@torch.no_grad()
def test_saving_and_loading_again_changes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    """save_pretrained of a loaded checkpoint is the same checkpoint: weights, config and code."""
    trusted = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
    trusted.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again", trust_remote_code=True)
    assert torch.equal(again(TOKENS).logits, trusted(TOKENS).logits)
    first, second = (load_file(folder / "model.safetensors") for folder in (checkpoint, tmp_path / "again"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in ("config.json", "modeling_ghosted.py"):
        assert (tmp_path / "again" / name).read_text() == (checkpoint / name).read_text()


def test_the_tokenizer_is_the_sources(tiny_folder: Path, checkpoint: Path) -> None:
    """Same ids, same chat."""
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (checkpoint, tiny_folder))
    chat = [{"role": "user", "content": "Grüße!"}]
    assert ours("Grüße!").input_ids == theirs("Grüße!").input_ids
    assert ours.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False)


@torch.no_grad()
def test_without_repair_the_checkpoint_is_stock(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """recovery: none loads with the plain class, needs no code, and says what kind it is."""
    path = make(tiny_folder, text_file, tmp_path / "out", recovery="none")
    config = json.loads((path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["num_hidden_layers"] == 2
    assert "auto_map" not in config
    assert not list(path.glob("*.py"))
    model, report = LlamaForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(model(TOKENS).logits, load_patched(path)(TOKENS).logits)


def test_a_verified_checkpoint_answers_its_probe(checkpoint: Path) -> None:
    """What was written down at the making is found again."""
    assert verify_checkpoint(checkpoint).manifest.plan.removed == (0, 2, 3, 5)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "modeling_ghosted.py"]
)
def test_altered_files_are_refused(checkpoint: Path, name: str) -> None:
    """One flipped bit anywhere is noticed before anything is loaded."""
    content = bytearray((checkpoint / name).read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        load_patched(checkpoint)


def test_missing_and_added_files_are_refused(checkpoint: Path) -> None:
    """The folder holds what the manifest lists, no less and no more."""
    (checkpoint / "extra.py").write_text("print('hello')")
    with pytest.raises(CheckpointError, match=r"extra\.py"):
        load_patched(checkpoint)
    (checkpoint / "extra.py").unlink()
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"missing: tokenizer\.json"):
        load_patched(checkpoint)


def rewrite(checkpoint: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Other weights, with a manifest that vouches for them."""
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    manifest = json.loads((checkpoint / "ghosted.json").read_text())
    manifest["files"]["model.safetensors"] = file_entry(checkpoint / "model.safetensors").model_dump()
    (checkpoint / "ghosted.json").write_text(json.dumps(manifest))


def test_a_lost_operator_never_passes_for_the_identity(checkpoint: Path) -> None:
    """A file without its operators is refused by the library and by the code it carries."""
    tensors = {n: t for n, t in load_file(checkpoint / "model.safetensors").items() if "ghosted" not in n}
    rewrite(checkpoint, tensors)
    with pytest.raises(CheckpointError, match="lacks operators"):
        load_patched(checkpoint)
    with pytest.raises(ValueError, match="lacks operators"):
        AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)


def test_other_weights_fail_the_probe(checkpoint: Path) -> None:
    """Finite, complete and wrong: the answers tell."""
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"] *= 1.5
    rewrite(checkpoint, tensors)
    with pytest.raises(CheckpointError, match="answers differently"):
        verify_checkpoint(checkpoint)


def test_a_manifest_cannot_name_any_class(checkpoint: Path) -> None:
    """Only architectures of our own table are looked up in transformers."""
    manifest = json.loads((checkpoint / "ghosted.json").read_text())
    manifest["source"]["architecture"] = "AutoModel"
    (checkpoint / "ghosted.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="unknown architecture"):
        load_patched(checkpoint)


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"format": 2}'])
def test_a_broken_manifest_is_a_typed_error(checkpoint: Path, text: str) -> None:
    """Whatever ghosted.json holds."""
    (checkpoint / "ghosted.json").write_text(text)
    with pytest.raises(CheckpointError):
        load_patched(checkpoint)


@pytest.mark.parametrize("recovery", ["none", "ghosted"])
def test_a_config_cannot_name_a_kernel(
    tiny_folder: Path, text_file: Path, tmp_path: Path, recovery: str
) -> None:
    """Even if the manifest vouches for it: transformers would fetch and run that repository's code."""
    folder = make(tiny_folder, text_file, tmp_path / recovery, recovery=recovery)
    config, manifest = folder / "config.json", folder / "ghosted.json"
    content = json.loads(config.read_text()) | {"_attn_implementation": "owner/kernel"}
    config.write_text(json.dumps(content))
    record = json.loads(manifest.read_text())
    record["files"]["config.json"] = file_entry(config).model_dump()
    manifest.write_text(json.dumps(record))
    with pytest.raises(UnsafeModelError, match="kernel"):
        load_patched(folder)
