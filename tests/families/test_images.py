"""A model that sees images loses layers of its language model and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForImageTextToText, Gemma3ForConditionalGeneration

from ghosted_core import load_patched, verify_checkpoint
from ghosted_core.describe import describe
from ghosted_core.estimate import estimate
from ghosted_core.model.families import family_of
from ghosted_core.model.skipping import LayerSkipper
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import NullRecorder
from ghosted_core.spec import JobSpec
from ghosted_core.testing import tiny_model
from ghosted_core.workplace import Workplace
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

LAYERS = 6
REMOVED = [1, 4]
LANGUAGE = "language_model."
PROCESSORS = {"preprocessor_config.json": b'{"image_size": 32}\n', "processor_config.json": b'{"n": 4 }\n'}


def hub_name(name: str) -> str:
    """How the published repositories name the tensor: transformers leaves a module out by now."""
    return name.replace("vision_tower.", "vision_tower.vision_model.")


@pytest.fixture(scope="module", params=["short", "hub"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Gemma-3 with a vision tower, its tensors named as today or as on the Hub, in bfloat16."""
    folder = tmp_path_factory.mktemp(request.param) / "source"
    model = tiny_model("gemma3")
    # It starts as zeros, through which no image would be seen.
    model.get_submodule("model.multi_modal_projector").mm_input_projection_weight.normal_()
    save_tiny_model(model.to(torch.bfloat16), folder)
    if request.param == "hub":
        tensors = load_file(folder / "model.safetensors")
        named = {hub_name(name): tensor for name, tensor in tensors.items()}
        save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in PROCESSORS.items():
        (folder / name).write_bytes(content)
    return folder


def run(spec: JobSpec, out: Path) -> Path:
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


@pytest.fixture(params=["none", "ghosted"])
def checkpoint(request: pytest.FixtureRequest, source: Path, text_file: Path, tmp_path: Path) -> Path:
    """The source without two layers, as it is and repaired."""
    return run(tiny_spec(source, text_file, remove=REMOVED, recovery=request.param), tmp_path / "out")


def picture(shade: float) -> dict[str, Tensor]:
    """A prompt with an image of random dots, some of them brighter by `shade`."""
    pixels = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    pixels[..., :16] += shade
    return {
        "input_ids": torch.tensor([[1, 40, 301, 300, 300, 300, 300, 302, 41, 42]]),
        "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0, 0, 0]]),
        "attention_mask": torch.ones(1, 10, dtype=torch.int64),
        "pixel_values": pixels,
    }


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_what_is_not_the_language_models_is_kept_bit_for_bit(source: Path, checkpoint: Path) -> None:
    """Vision tower and projector have their source's names and bits; the image settings are as they were."""
    before, after = (load_file(folder / "model.safetensors") for folder in (source, checkpoint))
    others = {name for name in before if not name.startswith(LANGUAGE)}
    assert others == {name for name in after if not name.startswith(LANGUAGE)}
    assert all(torch.equal(before[name], after[name]) for name in others)
    for name, content in PROCESSORS.items():
        assert (checkpoint / name).read_bytes() == content
    old, new = read(source), read(checkpoint)
    new = new.get("base_config", new)
    for part in ("text_config", "vision_config"):
        # transformers writes by now in each part what the whole was loaded as.
        assert new[part].pop("dtype") == "bfloat16"
    old["text_config"]["num_hidden_layers"] = LAYERS - len(REMOVED)
    old["text_config"]["layer_types"] = ["sliding_attention"] * 3 + ["full_attention"]
    same = set(old) - {"architectures", "model_type", "dtype", "transformers_version"}
    assert {name: new[name] for name in same} == {name: old[name] for name in same}


@torch.no_grad()
def test_images_go_through_the_pruned_model(source: Path, text_file: Path, tmp_path: Path) -> None:
    """The stock class reads the checkpoint and answers to an image as the source with layers passed over."""
    folder = run(tiny_spec(source, text_file, remove=REMOVED, recovery="none"), tmp_path / "out")
    dense = Gemma3ForConditionalGeneration.from_pretrained(source, dtype=torch.float32).eval()
    pruned = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    assert type(pruned) is Gemma3ForConditionalGeneration
    with LayerSkipper(dense, family_of("gemma3")).without(REMOVED):
        expected = dense(**picture(0)).logits
    assert torch.equal(pruned(**picture(0)).logits, expected)
    assert not torch.allclose(pruned(**picture(1)).logits, expected)


@torch.no_grad()
def test_images_go_through_the_repaired_model(
    source: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded by the library or by its own code, it answers to an image, and generates after one."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = run(tiny_spec(source, text_file, remove=REMOVED, dtype="float32"), tmp_path / "out")
    model = load_patched(folder)
    trusted = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=True).eval()
    logits = model(**picture(0)).logits
    assert torch.equal(trusted(**picture(0)).logits, logits)
    assert not torch.allclose(model(**picture(1)).logits, logits)
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    cached, uncached = (model.generate(**picture(0), use_cache=use, **settings) for use in (True, False))
    assert torch.equal(cached, uncached)


def test_the_vision_tower_does_not_shrink(source: Path, text_file: Path, tmp_path: Path) -> None:
    """Before a weight is read the parameters of the checkpoint are known, with the tower in full."""
    spec = tiny_spec(source, text_file, remove=REMOVED)
    place = Workplace(cache=tmp_path / "cache", recorder=NullRecorder())
    description = describe(place.source(spec.model))
    plan = PruningPlan.from_removed(REMOVED, layer_count=description.layer_count)
    found = estimate(spec, description, plan)
    manifest = verify_checkpoint(run(spec, tmp_path / "out")).manifest
    assert (found.parameters_before, found.parameters_after) == (
        manifest.source.parameters,
        manifest.parameters,
    )
    assert (description.hidden_size, description.vocabulary_size, description.layer_count) == (32, 320, 6)


@pytest.mark.parametrize("strategy", ["taylor", "sleb", "magnitude", "angular", "shortgpt_channel"])
def test_criteria_see_the_language_model(
    source: Path, text_file: Path, tmp_path: Path, strategy: str
) -> None:
    """Gradients, losses, weights and states are those of its layers, not of the tower's."""
    settings = {"name": strategy, "protect": False} if strategy in {"taylor", "magnitude"} else strategy
    spec = tiny_spec(source, text_file, strategy=settings, evaluation=None)
    folder = run(spec, tmp_path / "out")
    assert len(verify_checkpoint(folder).manifest.plan.removed) == 2


def test_the_card_says_what_text_cannot_tell(checkpoint: Path) -> None:
    """That images still work, and that nobody measured them."""
    card = (checkpoint / "README.md").read_text()
    assert "pipeline_tag: image-text-to-text" in card
    assert "measured on text only" in card
