import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.checkpoint.load import copy_source_files, load_model, load_tokenizer
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.errors import (
    CorruptModelError,
    ModelNotFoundError,
    NonFiniteError,
    UnsafeModelError,
    UnsupportedModelError,
)
from ghosted_core.model.families import SUPPORTED
from ghosted_core.spec import CatalogModel, LocalModel
from ghosted_core.testing import tiny_model
from tests.model_folders import tiny_files, write_files
from tests.tokenizers_made_here import EOS, byte_tokenizer

HIDDEN = 16
VOCABULARY = 259  # The bytes, two special tokens, and one merge.


def source_of(path: Path) -> ModelSource:
    """The checked local source."""
    return resolve(
        LocalModel(path=str(path)),
        catalog=Catalog(models={}, texts={}),
        cache=path.parent,
        hub_token=None,
        log=lambda _: None,
    )


def tiny_config(**changes: Any) -> LlamaConfig:
    """A Llama of two layers."""
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaConfig(**{**sizes, **heads, "bos_token_id": 256, "eos_token_id": 257, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved Llama with random weights, tokenizer and the files that go with them."""
    torch.manual_seed(0)
    path = tmp_path / "model"
    LlamaForCausalLM(tiny_config()).save_pretrained(path)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(path)
    extra = {
        "generation_config.json": b'{"do_sample": false,  "temperature": 0.9}\n',
        "additional_chat_templates/tools.jinja": b"tools",
        "LICENSE": b"free",
        "NOTICE.txt": b"note",
        "README.md": b"read me",
        "modeling.py": b"raise SystemExit",
    }
    return write_files(path, extra)


def changed_weights(folder: Path, change: Any) -> Path:
    """The folder after `change` was applied to its dictionary of tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_are_those_of_the_file(folder: Path) -> None:
    """Every tensor of the file is in the model, bit for bit, frozen and in eval mode."""
    model = load_model(source_of(folder), dtype="auto", device="cpu")
    state = model.state_dict()
    stored = load_file(folder / "model.safetensors")
    assert set(state) == set(stored)
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_auto_is_the_dtype_of_the_config(folder: Path) -> None:
    """A checkpoint in bfloat16 is loaded as such, and in float32 when asked for."""
    model: Any = LlamaForCausalLM(tiny_config())
    model.to(torch.bfloat16).save_pretrained(folder)
    source = source_of(folder)
    assert load_model(source, dtype="auto", device="cpu").dtype == torch.bfloat16
    assert load_model(source, dtype="float32", device="cpu").dtype == torch.float32


def test_tied_heads_stay_tied(folder: Path) -> None:
    """A head that is the embedding is one tensor after loading."""
    LlamaForCausalLM(tiny_config(tie_word_embeddings=True)).save_pretrained(folder)
    model: Any = load_model(source_of(folder), dtype="auto", device="cpu")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_missing_tensors_are_corrupt(folder: Path) -> None:
    """A layer without weights would be random; it is refused."""
    name = "model.layers.1.mlp.up_proj.weight"
    changed_weights(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(CorruptModelError, match=name):
        load_model(source_of(folder), dtype="auto", device="cpu")


@pytest.mark.parametrize("prefix", ["model.layers", "layers"])
def test_layers_beyond_the_configured_number_are_corrupt(folder: Path, prefix: str) -> None:
    """Weights of a third layer under a config of two would be left out without a word."""
    name = f"{prefix}.2.mlp.up_proj.weight"
    changed_weights(folder, lambda tensors: tensors.update({name: torch.ones(24, HIDDEN)}))
    with pytest.raises(CorruptModelError, match=r"after the 2 layers .*layers\.2\.mlp"):
        load_model(source_of(folder), dtype="auto", device="cpu")


@pytest.mark.parametrize("model_type", SUPPORTED)
def test_every_family_notices_a_layer_too_many(tmp_path: Path, model_type: str) -> None:
    """Whatever a family calls its layers, with or without the outer modules, one more is found."""
    tiny_model(model_type, layers=4).save_pretrained(tmp_path)
    path = SUPPORTED[model_type].layers
    for name in (f"{path}.4.extra.weight", f"{path.rpartition('.')[2]}.4.extra.weight"):
        changed_weights(tmp_path, lambda tensors, name=name: tensors.update({name: torch.ones(1)}))
        with pytest.raises(CorruptModelError, match="after the 4 layers"):
            load_model(source_of(tmp_path), dtype="auto", device="cpu")
        changed_weights(tmp_path, lambda tensors, name=name: tensors.pop(name))


@pytest.mark.parametrize(
    "name", ["model.layers.1.self_attn.rotary_emb.inv_freq", "vision.layers.7.weight", "model.layers.weight"]
)
def test_other_names_are_let_be(folder: Path, name: str) -> None:
    """Buffers of old repositories and parts beside the decoder do no harm."""
    changed_weights(folder, lambda tensors: tensors.update({name: torch.ones(4)}))
    load_model(source_of(folder), dtype="auto", device="cpu")


def test_tensors_of_another_shape_are_corrupt(folder: Path) -> None:
    """So is a tensor that does not fit the config."""
    changed_weights(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(HIDDEN + 1)}))
    with pytest.raises(CorruptModelError):
        load_model(source_of(folder), dtype="auto", device="cpu")


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    """Not-a-number is found at loading, with the tensor's name."""
    changed_weights(folder, lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    with pytest.raises(NonFiniteError, match=r"model\.norm\.weight"):
        load_model(source_of(folder), dtype="auto", device="cpu")


def test_overflow_in_half_precision_is_refused(folder: Path) -> None:
    """A weight that float16 cannot hold is refused there and fine in float32."""
    changed_weights(folder, lambda tensors: tensors["model.norm.weight"].fill_(1e6))
    load_model(source_of(folder), dtype="float32", device="cpu")
    with pytest.raises(NonFiniteError):
        load_model(source_of(folder), dtype="float16", device="cpu")


def test_a_class_that_is_not_the_stock_one_is_unsupported(folder: Path) -> None:
    """A config that names another class than transformers has for its type is refused."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["MistralForCausalLM"]}))
    with pytest.raises(UnsupportedModelError, match="LlamaForCausalLM"):
        load_model(source_of(folder), dtype="auto", device="cpu")


def test_no_path_of_this_machine_is_kept(folder: Path) -> None:
    """The config that will be saved names the model, not where it lay."""
    model = load_model(source_of(folder), dtype="auto", device="cpu")
    assert str(folder.parent) not in model.config.to_json_string(use_diff=False)


def test_loading_is_silent_and_leaves_logging_alone(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither bars nor reports are printed, and afterwards transformers logs as before."""
    from transformers.utils import logging as library

    changed_weights(folder, lambda tensors: tensors.update({"stray": torch.ones(1)}))
    level, bars = logging.getLogger("transformers").level, library.is_progress_bar_enabled()
    load_model(source_of(folder), dtype="auto", device="cpu")
    load_tokenizer(source_of(folder))
    assert capfd.readouterr() == ("", "")
    assert (logging.getLogger("transformers").level, library.is_progress_bar_enabled()) == (level, bars)


def test_a_folder_without_tokenizer_is_corrupt(tmp_path: Path) -> None:
    """Without tokenizer files there is nothing to calibrate with."""
    with pytest.raises(CorruptModelError):
        load_tokenizer(source_of(write_files(tmp_path / "model", tiny_files())))


def test_source_files_are_copied_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    """Tokenizer, templates, settings (even such as transformers refuses to save) and licence; no more."""
    destination = tmp_path / "out"
    destination.mkdir()
    names = copy_source_files(source_of(folder), destination)
    written = sorted(
        path.relative_to(destination).as_posix() for path in destination.rglob("*") if path.is_file()
    )
    assert list(names) == written
    assert all((destination / name).read_bytes() == (folder / name).read_bytes() for name in names)
    expected = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}
    assert set(names) == expected | {"additional_chat_templates/tools.jinja", "LICENSE", "NOTICE.txt"}


def test_fingerprints_follow_the_content(folder: Path, tmp_path: Path) -> None:
    """A copy has the same fingerprint; other weights, or another config, have another."""
    shutil.copytree(folder, tmp_path / "copy")
    original = source_of(folder).fingerprint
    assert source_of(tmp_path / "copy").fingerprint == original
    changed_weights(folder, lambda tensors: tensors["model.norm.weight"].mul_(2))
    assert source_of(folder).fingerprint != original


def test_sampled_fingerprints_see_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files are fingerprinted by samples, the first and the last bytes among them."""
    monkeypatch.setattr("ghosted_core.checkpoint.source.SMALL_BYTES", 0)
    monkeypatch.setattr("ghosted_core.checkpoint.source.SAMPLE_BYTES", 4)
    folder = write_files(tmp_path / "model", tiny_files())
    seen = {source_of(folder).fingerprint}
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    seen.add(source_of(folder).fingerprint)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("weights.txt", b"", UnsupportedModelError),
        ("model.gguf", b"PK..", UnsafeModelError),
        (None, b"", ModelNotFoundError),
    ],
)
def test_other_files_are_no_models(tmp_path: Path, name: str | None, content: bytes, error: Any) -> None:
    """A missing path, another kind of file and a false GGUF file are told apart."""
    if name is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error):
        source_of(tmp_path / (name or "missing"))


def write_gguf(
    path: Path, *, norm: float = 1.0, tensors: bool = True, merges: Sequence[str] = ("h e",)
) -> None:
    """A tiny Llama with tokenizer and chat template as a GGUF file, in float32."""
    config, generator = tiny_config(), np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCABULARY)
    vocabulary = byte_tokenizer().get_vocab()
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*sorted(vocabulary, key=vocabulary.__getitem__), "he"])
    writer.add_token_types([1] * 256 + [3] * 2 + [1])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output": (VOCABULARY, HIDDEN)}
    for block in range(config.num_hidden_layers):
        shapes |= {f"blk.{block}.{part}": (HIDDEN, HIDDEN) for part in ("attn_q", "attn_k", "attn_v")}
        shapes |= {f"blk.{block}.attn_output": (HIDDEN, HIDDEN), f"blk.{block}.ffn_down": (HIDDEN, 24)}
        shapes |= {f"blk.{block}.{part}": (24, HIDDEN) for part in ("ffn_gate", "ffn_up")}
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{block}.{part}.weight", np.ones(HIDDEN, np.float32))
    for name, shape in shapes.items() if tensors else ():
        writer.add_tensor(f"{name}.weight", generator.normal(size=shape).astype(np.float32))
    writer.add_tensor("output_norm.weight", np.full(HIDDEN, norm, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    """The tiny Llama as a GGUF file."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    return path


def test_a_gguf_model_is_a_stock_model_that_saves(gguf_file: Path, tmp_path: Path) -> None:
    """It is in float32, has the file's weights, and saves and reloads without a trace of GGUF."""
    model: Any = load_model(source_of(gguf_file), dtype="auto", device="cpu")
    embedding = np.random.default_rng(0).normal(size=(VOCABULARY, HIDDEN)).astype(np.float32)
    assert torch.equal(model.get_input_embeddings().weight, torch.from_numpy(embedding))
    assert type(model) is LlamaForCausalLM
    model.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert "quantization_config" not in config
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", local_files_only=True)
    assert all(
        torch.equal(tensor, reloaded.state_dict()[name]) for name, tensor in model.state_dict().items()
    )


@pytest.mark.parametrize(
    ("change", "error"), [({"norm": float("inf")}, NonFiniteError), ({"tensors": False}, CorruptModelError)]
)
def test_gguf_weights_are_complete_and_finite(tmp_path: Path, change: dict[str, Any], error: Any) -> None:
    """A GGUF file without its tensors, or with an infinite one, is refused."""
    write_gguf(tmp_path / "bad.gguf", **change)
    with pytest.raises(error):
        load_model(source_of(tmp_path / "bad.gguf"), dtype="auto", device="cpu")


def test_gguf_cut_short_is_corrupt(gguf_file: Path) -> None:
    """A file that ends in the middle is reported as broken."""
    content = gguf_file.read_bytes()
    gguf_file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptModelError):
        load_model(source_of(gguf_file), dtype="auto", device="cpu")


def test_gguf_loading_is_silent(gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The GGUF reader's own bar is silenced too."""
    load_model(source_of(gguf_file), dtype="auto", device="cpu")
    assert capfd.readouterr() == ("", "")


def test_a_gguf_tokenizer_that_makes_no_sense_is_corrupt(tmp_path: Path) -> None:
    """A merge to a token that does not exist is a fault of the file."""
    write_gguf(tmp_path / "bad.gguf", merges=["q q"])
    with pytest.raises(CorruptModelError):
        load_tokenizer(source_of(tmp_path / "bad.gguf"))


def test_gguf_companions_are_written(gguf_file: Path, tmp_path: Path) -> None:
    """Tokenizer, chat template and generation settings can be loaded from the folder they went to."""
    destination = tmp_path / "out"
    destination.mkdir()
    names = copy_source_files(source_of(gguf_file), destination)
    assert {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= set(names)
    original, copied = load_tokenizer(source_of(gguf_file)), AutoTokenizer.from_pretrained(destination)
    assert copied.chat_template == original.chat_template == "{{ messages[0]['content'] }}"
    assert copied.eos_token == EOS
    assert copied("he said")["input_ids"] == original("he said")["input_ids"]
    assert GenerationConfig.from_pretrained(destination).eos_token_id == 257


@pytest.mark.real
def test_the_real_model_knows_how_to_chat(real_cache: Path) -> None:
    """SmolLM2-135M-Instruct comes with 30 finite layers, its chat template and its end of turn."""
    source = resolve(
        CatalogModel(alias="smollm2-135m-instruct"),
        catalog=builtin_catalog(),
        cache=real_cache,
        hub_token=None,
        log=lambda _: None,
    )
    tokenizer = load_tokenizer(source)
    assert tokenizer.eos_token == "<|im_end|>"  # noqa: S105  # A token of text, not a password.
    chat = [{"role": "user", "content": "Hi"}]
    assert "<|im_start|>user\nHi<|im_end|>" in tokenizer.apply_chat_template(chat, tokenize=False)
    assert load_model(source, dtype="auto", device="cpu").config.num_hidden_layers == 30
