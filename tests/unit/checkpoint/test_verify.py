"""Whatever a manifest vouches for: a checkpoint that is not what the job made does not pass."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ghosted_core import verify_checkpoint
from ghosted_core.checkpoint.manifest import file_entry
from ghosted_core.errors import CheckpointError
from ghosted_core.model.families import family_of
from ghosted_core.model.kinds import layer_kinds
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.testing import tiny_llama, tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model


@pytest.fixture
def checkpoint(tiny_folder: Path, text_file: Path, tmp_path: Path) -> Path:
    """A repaired checkpoint with metrics."""
    spec = tiny_spec(tiny_folder, text_file, remove=[2, 3])
    options = RunOptions(out=tmp_path / "out", cache=tmp_path / "cache")
    return compress(spec, options, NullRecorder()).path


def rewrite_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Other tensors, for which the manifest vouches."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    vouch(folder, "model.safetensors")


def rewrite_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another manifest."""
    content = json.loads((folder / "ghosted.json").read_text())
    change(content)
    (folder / "ghosted.json").write_text(json.dumps(content))


def vouch(folder: Path, name: str) -> None:
    """The manifest has the file's hash as it is now."""
    entry = file_entry(folder / name).model_dump()
    rewrite_manifest(folder, lambda content: content["files"].update({name: entry}))


def test_a_whole_checkpoint_passes(checkpoint: Path) -> None:
    """The other tests spoil this one."""
    assert len(verify_checkpoint(checkpoint).manifest.layer_kinds) == 4


def test_a_missing_tensor_is_noticed(checkpoint: Path) -> None:
    """Names are those of the architecture."""
    rewrite_tensors(checkpoint, lambda tensors: tensors.__delitem__("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match="missing_keys"):
        verify_checkpoint(checkpoint)


def test_an_added_tensor_is_noticed(checkpoint: Path) -> None:
    """A layer more than the configuration counts."""
    extra = {"model.layers.4.mlp.up_proj.weight": torch.ones(2, 2)}
    rewrite_tensors(checkpoint, lambda tensors: tensors.update(extra))
    with pytest.raises(CheckpointError, match="unexpected_keys"):
        verify_checkpoint(checkpoint)


def test_a_tensor_that_is_not_finite_is_noticed(checkpoint: Path) -> None:
    """Even where no probe would come by."""

    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.embed_tokens.weight"][319] = math.inf

    rewrite_tensors(checkpoint, spoil)
    with pytest.raises(CheckpointError, match="not-a-number"):
        verify_checkpoint(checkpoint)


def test_swapped_layers_are_noticed(checkpoint: Path) -> None:
    """Each name is there and each tensor fits: only the answers tell."""

    def swap(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("model.layers.0.")]:
            other = name.replace("layers.0", "layers.1")
            tensors[name], tensors[other] = tensors[other], tensors[name]

    rewrite_tensors(checkpoint, swap)
    with pytest.raises(CheckpointError, match="answers differently"):
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_answers_of_a_manifest_that_are_no_answers_are_noticed(checkpoint: Path, value: float) -> None:
    """Not-a-number is equal to nothing."""

    def change(content: dict[str, Any]) -> None:
        content["probe"]["top_logits"][3][0] = value

    rewrite_manifest(checkpoint, change)
    with pytest.raises(CheckpointError, match=r"answers differently|not valid"):
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize("name", ["perplexity_repaired", "nll_pruned", "perplexity_dense"])
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_metric_that_is_no_number_is_noticed(checkpoint: Path, name: str, value: float | None) -> None:
    """And named."""
    rewrite_manifest(checkpoint, lambda content: content["metrics"].update({name: value}))
    with pytest.raises(CheckpointError, match=name):
        verify_checkpoint(checkpoint)


def test_a_layer_of_another_kind_is_noticed(text_file: Path, tmp_path: Path) -> None:
    """Full attention in the place of sliding attention: a short probe cannot tell them apart."""
    source = save_tiny_model(tiny_model("gemma2"), tmp_path / "source")
    spec = tiny_spec(source, text_file, remove=[2], recovery="none", evaluation=None)
    folder = compress(spec, RunOptions(out=tmp_path / "out", cache=tmp_path), NullRecorder()).path
    config = json.loads((folder / "config.json").read_text())
    kinds = config["layer_types"]
    assert set(kinds) == {"full_attention", "sliding_attention"}
    config["layer_types"] = [*kinds[1:], kinds[0]]
    (folder / "config.json").write_text(json.dumps(config))
    vouch(folder, "config.json")
    with pytest.raises(CheckpointError, match=r"Layer \d is '.*attention' and was '.*attention'"):
        verify_checkpoint(folder)


@pytest.mark.parametrize("model_type", ["qwen3_moe", "gemma2", "smollm3"])
def test_kinds_tell_unlike_layers_apart(model_type: str) -> None:
    """Plain MLPs among experts, sliding among full attention, layers without position codes."""
    model = tiny_model(model_type)
    assert len(set(layer_kinds(model, family_of(model_type)))) > 1


def test_layers_of_a_llama_are_of_one_kind() -> None:
    """Nothing that differs from layer to layer, such as a number, is part of the kind."""
    kinds = layer_kinds(tiny_llama(), family_of("llama"))
    assert set(kinds) == {"LlamaDecoderLayer(LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRMSNorm)"}
