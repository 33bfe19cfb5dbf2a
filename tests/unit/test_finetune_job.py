"""Whole jobs with training after the repair."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.patched import load_patched, verify_checkpoint
from ghosted_core.checkpoint.source import resolve
from ghosted_core.errors import QualityGateError
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.evaluate.task_subjects import load_subject, save_repair
from ghosted_core.model.surgery import repaired_model
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import Logged, MemoryRecorder, MetricMeasured, StageFinished
from ghosted_core.report_html import HTML_NAME, JSON_NAME
from ghosted_core.spec import LocalModel
from ghosted_core.stage_cache import FolderStageCache
from ghosted_core.testing import tiny_llama
from tests.jobs import tiny_spec

Run = Callable[..., tuple[JobResult, MemoryRecorder]]
FEW = {"sequences": 8, "held_out_sequences": 2, "epochs": 1, "learning_rate": 1e-2}
SIZES = {"repaired": 0.1, "finetuned": 0.3}
EVALUATED = {"windows": 2, "prompts": []}
IN_A_BARE_PROCESS = """
import sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)  # As here: sums in another order have other bits.
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert "ghosted_core" not in sys.modules
assert type(model).__name__ == "LlamaForCausalLM"
torch.save(model(torch.arange(3, 30)[None]).logits, sys.argv[2])
"""


@pytest.fixture
def run(tiny_folder: Path, text_file: Path, tmp_path: Path) -> Run:
    """A job with training; a new folder each time, one stage cache for all."""
    count = 0

    def go(**changes: Any) -> tuple[JobResult, MemoryRecorder]:
        nonlocal count
        count += 1
        spec = tiny_spec(
            tiny_folder, text_file, **{"remove": [2, 3], "evaluation": None, "finetune": FEW, **changes}
        )
        memory = MemoryRecorder()
        options = RunOptions(
            out=tmp_path / f"out{count}",
            cache=tmp_path / "cache",
            stages=FolderStageCache(tmp_path / "stages"),
        )
        return compress(spec, options, memory), memory

    return go


def test_every_step_of_the_way_is_measured(run: Run) -> None:
    """Training is a stage of its own; four models stand side by side, and the artifact is the trained one."""
    result, memory = run(evaluation=EVALUATED)
    stages = [event.stage for event in memory.events if isinstance(event, StageFinished)]
    assert stages == ["load", "calibrate", "solve", "patch", "finetune", "evaluate", "save"]
    measured = [event.name for event in memory.events if isinstance(event, MetricMeasured)]
    variants = ("dense", "pruned", "repaired", "finetuned")
    assert measured[:5] == ["finetune_held_out_kl", *(f"perplexity_{variant}" for variant in variants)]
    manifest = result.manifest
    assert manifest.finetune is not None
    assert manifest.finetune["tokens"] == 8 * 64
    assert {"damage_ratio", "damage_ratio_finetuned", "kl_finetuned"} <= manifest.metrics.keys()
    (fit,) = manifest.fits
    assert fit["spectrum"]["rank"] == fit["spectrum_finetuned"]["rank"]
    assert fit["spectrum"]["singular_value"] != fit["spectrum_finetuned"]["singular_value"]
    assert "M after training" in (result.path / "report.html").read_text()
    verify_checkpoint(result.path)


def test_the_documents_tell_of_it(run: Run) -> None:
    """Page, JSON and card: the curve, what trained, on how many tokens, for how long."""
    result, _ = run(evaluation=EVALUATED)
    page, card = ((result.path / name).read_text() for name in (HTML_NAME, "README.md"))
    report = json.loads((result.path / JSON_NAME).read_text())
    assert 'aria-label="Loss curve"' in page
    assert "<th>finetuned</th>" in page
    assert report["artifact"] == "finetuned"
    assert set(report["rows"][0]["values"]) == {"dense", "pruned", "repaired", "finetuned"}
    assert [point["step"] for point in report["finetune"]["curve"]] == [0, 2, 4]
    assert "1,024 parameters) trained towards the unpruned model for 4 steps, 512 tokens" in card
    assert "| repaired and trained |" in card


def test_without_training_nothing_speaks_of_it(run: Run) -> None:
    """Checkpoints of such jobs are what they were."""
    result, _ = run(evaluation=EVALUATED, finetune=None)
    assert "finetune" not in json.loads((result.path / "ghosted.json").read_text())
    assert "finetuned" not in (result.path / HTML_NAME).read_text()


ALONE = {**FEW, "trainable": "down_proj", "learning_rate": 1e-3}


def test_the_projection_alone_keeps_the_stock_class(run: Run, tmp_path: Path) -> None:
    """A process without this library loads it, without its code, and gets the same logits."""
    result, _ = run(recovery="replace_me", finetune=ALONE)
    answers = tmp_path / "logits.pt"
    subprocess.run(
        [sys.executable, "-I", "-c", IN_A_BARE_PROCESS, str(result.path), str(answers)],
        check=True,
        timeout=300,
    )
    with torch.no_grad():
        expected = load_patched(result.path)(torch.arange(3, 30)[None]).logits
    assert torch.equal(torch.load(answers, weights_only=True), expected)


def test_an_operator_that_did_not_train_has_one_spectrum(run: Run) -> None:
    """Only the projection before it did."""
    (fit,) = run(finetune=ALONE)[0].manifest.fits
    assert fit["spectrum"]["rank"]
    assert "spectrum_finetuned" not in fit


@pytest.mark.parametrize("recovery", ["none", "prune_and_comp"])
def test_the_projection_trains_after_whatever_folds(run: Run, recovery: str) -> None:
    """No operator is left behind, and none of the weights that the repair changed is lost."""
    plain, _ = run(recovery=recovery, finetune=None)
    trained, _ = run(recovery=recovery, finetune=ALONE)
    before, after = (load_file(one.path / "model.safetensors") for one in (plain, trained))
    assert before.keys() == after.keys()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {"model.layers.1.mlp.down_proj.weight"}


def test_operators_of_every_repair_train(run: Run) -> None:
    """What starts as a diagonal ends as a whole matrix."""
    result, _ = run(recovery="linear_patch_diag", remove=[1, 4], finetune={**FEW, "learning_rate": 1e-3})
    tensors = load_file(result.path / "model.safetensors")
    for path in result.manifest.operators:
        operator = tensors[f"{path}.ghosted_operator.correction"]
        assert float((operator - operator.diag().diag()).abs().max()) > 0


def test_the_same_job_again_takes_all_from_the_stage_cache(run: Run) -> None:
    """Same bytes of weights, same manifest, times included."""
    (first, _), (second, memory) = run(), run()
    assert (second.path / "model.safetensors").read_bytes() == (first.path / "model.safetensors").read_bytes()
    assert second.manifest.model_dump_json() == first.manifest.model_dump_json()
    told = [e.message for e in memory.events if isinstance(e, Logged)]
    assert "4 steps of the training were taken from an earlier run." in told


def test_the_gate_judges_the_trained_model(run: Run) -> None:
    """Its figures, not those of the repair before."""
    gate = [{"metric": "perplexity", "max": 1.0}]
    with pytest.raises(QualityGateError, match="perplexity is"):
        run(evaluation={**EVALUATED, "gate": gate})


def test_benchmark_tasks_see_the_trained_model(tiny_folder: Path, tmp_path: Path) -> None:
    """The harness's process makes each variant of the file that is its own."""
    dense = tiny_llama(tied=True)
    plan = PruningPlan.from_removed([2, 3], layer_count=6)
    made = {
        name: {plan.boundaries[0]: torch.eye(32, dtype=torch.float64) * size} for name, size in SIZES.items()
    }
    for name, corrections in made.items():
        save_repair(tmp_path / name, corrections, {})
    source = resolve(
        LocalModel(path=str(tiny_folder)),
        catalog=builtin_catalog(),
        cache=tmp_path,
        hub_token=None,
        log=print,
    )
    subject = Subject(
        source=source,
        is_checkpoint=False,
        dtype="auto",
        device="cpu",
        variants=tuple(made),
        layer_count=6,
        removed=(2, 3),
        repair=tmp_path / "repaired",
        trained=tmp_path / "finetuned",
    )
    models, _ = load_subject(subject)
    tokens = torch.arange(3, 30)[None]
    for name, corrections in made.items():
        with torch.no_grad():
            expected = repaired_model(dense, plan, corrections)(tokens).logits
            torch.testing.assert_close(models[name](tokens).logits, expected)
