"""Converters to GGUF know tensors by name alone: ours are names that they know."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, TensorNameMap, get_tensor_name_map
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ghosted_core.model.families import SUPPORTED
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.testing import TINY, tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

SUFFIXES = (".weight", ".bias")
KEPT = 3
TOKENS = torch.arange(3, 40)[None]
# The converter takes this off before it looks a tensor of a language model up.
NESTED = "language_model."


def make(source: Path, text: Path, out: Path, recovery: str) -> Path:
    spec = tiny_spec(source, text, remove=[1, 2, 4], recovery=recovery, evaluation=None)
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


def known(names: TensorNameMap, tensors: Iterable[str]) -> dict[str, str]:
    """What the converter calls each tensor; all are known, and no two become one."""
    found = {name: names.get_name(name, try_suffixes=SUFFIXES) for name in tensors}
    assert not [name for name, converted in found.items() if converted is None]
    assert len(set(found.values())) == len(found)
    return {name: str(converted) for name, converted in found.items()}


@pytest.mark.parametrize(
    ("model_type", "architecture", "recovery"),
    [
        ("llama", MODEL_ARCH.LLAMA, "none"),
        ("llama", MODEL_ARCH.LLAMA, "prune_and_comp"),
        ("llama", MODEL_ARCH.LLAMA, "replace_me"),
        ("qwen3", MODEL_ARCH.QWEN3, "replace_me"),
        ("gemma3_text", MODEL_ARCH.GEMMA3, "none"),
    ],
)
def test_a_checkpoint_without_operators_has_names_that_converters_know(
    model_type: str, architecture: MODEL_ARCH, recovery: str, text_file: Path, tmp_path: Path
) -> None:
    """Each tensor has its place in the architecture's table for as many blocks as config.json counts."""
    source = save_tiny_model(tiny_model(model_type), tmp_path / "source")
    folder = make(source, text_file, tmp_path / "out", recovery)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [SUPPORTED[model_type].architecture]
    assert config["num_hidden_layers"] == KEPT
    names = get_tensor_name_map(architecture, KEPT)
    converted = set(known(names, load_file(folder / "model.safetensors")).values())
    # The source of six blocks has in each of them what ours have in each of three.
    whole = set(known(get_tensor_name_map(architecture, 6), load_file(source / "model.safetensors")).values())
    assert converted == {name for name in whole if not name.startswith(("blk.3.", "blk.4.", "blk.5."))}


def test_a_model_that_sees_images_has_names_that_converters_know(text_file: Path, tmp_path: Path) -> None:
    """Language model and vision tower, as the published repositories call them; transformers does not."""
    source = save_tiny_model(tiny_model("gemma3"), tmp_path / "source")
    tensors = load_file(source / "model.safetensors")
    published = {
        name.replace("vision_tower.", "vision_tower.vision_model."): t for name, t in tensors.items()
    }
    save_file(published, source / "model.safetensors", metadata={"format": "pt"})
    written = set(load_file(make(source, text_file, tmp_path / "out", "none") / "model.safetensors"))
    language = {name.removeprefix(NESTED) for name in written if name.startswith(NESTED)}
    known(get_tensor_name_map(MODEL_ARCH.GEMMA3, KEPT), language)
    others = {name for name in written if not name.startswith(NESTED)}
    # The one that the converter names by itself.
    others.remove("multi_modal_projector.mm_input_projection_weight")
    known(get_tensor_name_map(MODEL_ARCH.MMPROJ, 2), others)


def write_qwen3(path: Path, folder: Path) -> None:
    """The checkpoint as a GGUF file, by the architecture's table and nothing else."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(config["vocab_size"])])
    tensors = load_file(folder / "model.safetensors")
    names = get_tensor_name_map(MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, converted in known(names, tensors).items():
        writer.add_tensor(converted, tensors[name].numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def test_a_converted_checkpoint_answers_as_before(text_file: Path, tmp_path: Path) -> None:
    """A repaired Qwen3 becomes a GGUF file under the table's names, and that file gives the same logits."""
    torch.manual_seed(0)
    # As wide as all published ones: transformers takes the width of heads for granted.
    config = Qwen3Config(**{**TINY, "head_dim": 128}, num_hidden_layers=6)
    source = save_tiny_model(Qwen3ForCausalLM(config).eval(), tmp_path / "source")
    folder = make(source, text_file, tmp_path / "out", "replace_me")
    write_qwen3(tmp_path / "model.gguf", folder)
    plain: Any = AutoModelForCausalLM.from_pretrained(folder)
    converted: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    )
    torch.testing.assert_close(converted(TOKENS).logits, plain(TOKENS).logits)
