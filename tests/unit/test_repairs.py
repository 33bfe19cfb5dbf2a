"""Each repair, the whole way from a spec to a checkpoint that is loaded again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from ghosted_cli.render import fit_lines
from ghosted_core import load_patched, verify_checkpoint
from ghosted_core.errors import UnsupportedRepairError
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.recorder import MemoryRecorder, StageFinished
from ghosted_core.spec import RECOVERIES
from tests.jobs import tiny_spec
from tests.repairing import lively_llama
from tests.tiny import save_tiny_model

FOLDING = ("prune_and_comp", "replace_me", "replace_me_cosine")
INSERTING = ("ghosted", "linear_patch_diag", "linear_patch_rotate")
TOKENS = torch.arange(3, 40)[None]


def run(model: Path, text: Path, folder: Path, recovery: Any, remove: tuple[int, ...] = (2, 4)) -> JobResult:
    spec = tiny_spec(model, text, remove=remove, recovery=recovery)
    return compress(spec, RunOptions(out=folder / "out", cache=folder / "cache"), MemoryRecorder())


def test_no_repair_is_left_out_here() -> None:
    """What the spec knows is what is tested below."""
    assert {form.model_fields["name"].default for form in RECOVERIES} == {"none", *FOLDING, *INSERTING}


@torch.no_grad()
@pytest.mark.parametrize("name", FOLDING)
@pytest.mark.parametrize("tied", [False, True])
def test_folding_repairs_make_stock_checkpoints(
    name: str, text_file: Path, tmp_path: Path, *, tied: bool
) -> None:
    """The stock class loads them with nothing missing, same tensor names, ties kept, no code."""
    source = save_tiny_model(lively_llama(tied=tied), tmp_path / "source")
    path = run(source, text_file, tmp_path, name).path
    model, report = LlamaForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not any(report.values())
    assert not list(path.glob("*.py"))
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    config = json.loads((path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "auto_map" not in config
    before, after = (set(load_file(folder / "model.safetensors")) for folder in (source, path))
    assert after == {name for name in before if not name.startswith(("model.layers.4.", "model.layers.5."))}
    assert torch.equal(load_patched(path)(TOKENS).logits, model(TOKENS).logits)
    verify_checkpoint(path)
    card = (path / "README.md").read_text()
    assert f"`{name}`" in card
    assert "folded into the weights" in card


@torch.no_grad()
@pytest.mark.parametrize("name", INSERTING)
def test_inserting_repairs_make_patched_checkpoints(
    name: str, tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """One operator a boundary, also at the edges, loaded by the library; the card says which repair."""
    path = run(tiny_folder, text_file, tmp_path, name, remove=(0, 3, 5)).path
    sites = ["model.layers.0", "model.layers.2", "model.norm"]
    assert json.loads((path / "config.json").read_text())["ghosted_operators"] == sites
    verify_checkpoint(path)
    with pytest.raises((ValueError, OSError)):
        AutoModelForCausalLM.from_pretrained(path)
    assert f"`{name}`" in (path / "README.md").read_text()


@pytest.mark.parametrize("name", [*FOLDING, *INSERTING])
def test_the_report_has_what_the_repair_has(
    name: str, tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Residuals always; the rest where it exists; a person's line and valid JSON for all of them."""
    result = run(tiny_folder, text_file, tmp_path, name)
    manifest = json.loads((result.path / "ghosted.json").read_text(), parse_constant=pytest.fail)
    assert [fit["tokens"] for fit in manifest["fits"]] == [8 * 64] * 2
    assert all(fit["relative_residual"] > 0 for fit in manifest["fits"])
    assert all(fit["held_out_relative_residual"] > 0 for fit in manifest["fits"])
    assert (manifest["fits"][0]["condition"] is not None) == (name in {"ghosted", "replace_me"})
    lines = fit_lines(result.manifest).splitlines()
    assert lines[0].startswith("Boundary [2, 3): residual")
    if name == "linear_patch_rotate":
        assert "Hadamard: Sylvester 32" in lines[0]


def test_sequential_and_automatic_are_asked_for_in_the_spec(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Both end in the manifest, with the ridge that was chosen."""
    settings = {"name": "ghosted", "fit": "sequential", "ridge": "auto"}
    fits = run(tiny_folder, text_file, tmp_path, settings).manifest.fits
    assert [fit["fit"] for fit in fits] == ["sequential"] * 2
    for fit in fits:
        shown = fit["detail"]["held_out_residuals"]
        assert fit["held_out_relative_residual"] == min(shown)
        assert fit["ridge"] > 0
    assert not list(tmp_path.glob(".ghosted-scratch-*"))


@pytest.mark.parametrize("name", ["replace_me", "replace_me_cosine"])
def test_a_repair_without_a_place_ends_before_calibration(
    name: str, tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """No layer is before layer 0: a typed error, no pass, nothing left."""
    spec = tiny_spec(tiny_folder, text_file, remove=(0,), recovery=name)
    memory = MemoryRecorder()
    with pytest.raises(UnsupportedRepairError):
        compress(spec, RunOptions(out=tmp_path / "out", cache=tmp_path / "cache"), memory)
    assert [event.stage for event in memory.events if isinstance(event, StageFinished)] == ["load"]
    assert not (tmp_path / "out").exists()
