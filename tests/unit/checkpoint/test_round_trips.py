"""What was lost between a model's files and its copy elsewhere is not lost here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ghosted_core import load_patched
from ghosted_core.errors import OutputExistsError, UnsupportedModelError
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.testing import tiny_llama, tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

WEIGHTS = "model.safetensors"
TOKENS = torch.arange(3, 40)[None]


def make(source: Path, text: Path, out: Path, recovery: str = "ghosted", **changes: Any) -> Path:
    fields = {"remove": [1, 2], "recovery": recovery, "evaluation": None} | changes
    spec = tiny_spec(source, text, **fields)
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


def change(folder: Path, edit: Any) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


@torch.no_grad()
@pytest.mark.parametrize("recovery", ["none", "ghosted", "prune_and_comp"])
def test_a_head_of_its_own_survives_a_config_that_calls_it_tied(
    text_file: Path, tmp_path: Path, recovery: str
) -> None:
    """The values decide: head and embeddings are both written, and the copy's config tells the truth."""
    source = save_tiny_model(tiny_llama(tied=True), tmp_path / "source")
    head = torch.randn(320, 32, generator=torch.Generator().manual_seed(5))
    change(source, lambda tensors: tensors.update({"lm_head.weight": head}))
    folder = make(source, text_file, tmp_path / "out", recovery)
    written = load_file(folder / WEIGHTS)
    assert torch.equal(written["lm_head.weight"], head)
    config = json.loads((folder / "config.json").read_text())
    assert config.get("base_config", config)["tie_word_embeddings"] is False
    model: Any = load_patched(folder)
    assert torch.equal(model.lm_head.weight, head)
    assert torch.equal(model.model.embed_tokens.weight, written["model.embed_tokens.weight"])


def test_a_head_written_twice_stays_tied(text_file: Path, tmp_path: Path) -> None:
    """Equal values under both names are one tensor, as the config says, and are written once."""
    source = save_tiny_model(tiny_llama(tied=True), tmp_path / "source")
    change(
        source,
        lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}),
    )
    folder = make(source, text_file, tmp_path / "out")
    assert "lm_head.weight" not in load_file(folder / WEIGHTS)
    model: Any = load_patched(folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "phi3"])
@pytest.mark.parametrize("recovery", ["none", "ghosted"])
def test_every_reloaded_parameter_is_the_sources(
    text_file: Path, tmp_path: Path, model_type: str, recovery: str
) -> None:
    """Bit for bit, one by one: a clean report of loading alone does not say so."""
    dense = tiny_model(model_type)
    folder = make(save_tiny_model(dense, tmp_path / "source"), text_file, tmp_path / "out", recovery)
    kept = [0, 3, 4, 5]
    expected = dense.state_dict()
    for name, tensor in load_patched(folder).state_dict().items():
        if "ghosted_operator" in name:
            assert torch.equal(tensor, load_file(folder / WEIGHTS)[name])
            continue
        parts = name.split(".")
        if name.startswith("model.layers."):
            parts[2] = str(kept[int(parts[2])])
        assert torch.equal(tensor, expected.pop(".".join(parts))), name
    assert all(name.startswith(("model.layers.1.", "model.layers.2.")) for name in expected)


@torch.no_grad()
@pytest.mark.parametrize(("model_type", "outer"), [("gpt2", "transformer."), ("llama", "model.")])
@pytest.mark.parametrize("recovery", ["none", "ghosted"])
def test_names_without_the_outer_module_stay_so(
    text_file: Path, tmp_path: Path, model_type: str, outer: str, recovery: str
) -> None:
    """h.3 in the source's files is h.2 in ours, not transformer.h.2; it loads all the same."""
    source = save_tiny_model(tiny_model(model_type), tmp_path / "source")
    bare = {name.removeprefix(outer): tensor for name, tensor in load_file(source / WEIGHTS).items()}
    save_file(bare, source / WEIGHTS, metadata={"format": "pt"})
    folder = make(source, text_file, tmp_path / "out", recovery)
    written = load_file(folder / WEIGHTS)
    assert not [name for name in written if name.startswith(outer)]
    assert {name for name in written if "ghosted" not in name} < set(bare)
    whole = make(
        save_tiny_model(tiny_model(model_type), tmp_path / "whole"), text_file, tmp_path / "b", recovery
    )
    assert torch.equal(load_patched(folder)(TOKENS).logits, load_patched(whole)(TOKENS).logits)


def test_weights_for_further_tokens_are_not_dropped_in_silence(text_file: Path, tmp_path: Path) -> None:
    """A source whose files hold them is refused."""
    source = save_tiny_model(tiny_llama(), tmp_path / "source")
    change(source, lambda tensors: tensors.update({"mtp.layers.0.mlp.up_proj.weight": torch.ones(2, 2)}))
    with pytest.raises(UnsupportedModelError, match="further tokens"):
        make(source, text_file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recovery", ["none", "ghosted"])
def test_all_files_of_a_tokenizer_come_along(text_file: Path, tmp_path: Path, recovery: str) -> None:
    """Byte for byte and at the top level, also those that only other loaders read."""
    source = save_tiny_model(tiny_llama(), tmp_path / "source")
    files = {"tokenizer.model": b"\x0a\x05pieces", "vocab.json": b"{}", "merges.txt": b"#version: 0.2\n"}
    for name, content in files.items():
        (source / name).write_bytes(content)
    folder = make(source, text_file, tmp_path / "out", recovery)
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_a_model_is_never_written_over_itself(text_file: Path, tmp_path: Path) -> None:
    """The source's files are mapped while the job runs: its own folder is no place for the result."""
    source = save_tiny_model(tiny_llama(), tmp_path / "source")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    with pytest.raises(OutputExistsError):
        make(source, text_file, source)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
