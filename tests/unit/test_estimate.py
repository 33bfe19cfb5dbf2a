import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.safetensors_header import read_header
from ghosted_core.checkpoint.source import resolve
from ghosted_core.data import Windows, batches
from ghosted_core.describe import ModelDescription, describe
from ghosted_core.estimate import OPERATORS, PRODUCTS, STORED_FEATURES, Estimate, batch_tokens, estimate
from ghosted_core.evaluate.perplexity import losses_of
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import SUPPORTED, family_of
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import NullRecorder
from ghosted_core.recovery import RecoverySolver, RecoveryTrainer, solver_for
from ghosted_core.spec import RECOVERIES, JobSpec, LocalModel
from ghosted_core.statistics import BoundaryStatistics
from ghosted_core.testing import tiny_llama
from tests.jobs import tiny_spec

REMOVED = (1, 3, 4)


def described(folder: Path) -> ModelDescription:
    reference = LocalModel(path=str(folder))
    return describe(
        resolve(
            reference, catalog=builtin_catalog(), cache=folder, hub_token=None, log=print, supported=SUPPORTED
        )
    )


def estimated(spec: JobSpec, folder: Path) -> Estimate:
    return estimate(spec, described(folder), PruningPlan.from_removed(REMOVED, layer_count=6))


def finished(spec: JobSpec, folder: Path) -> JobResult:
    return compress(spec, RunOptions(out=folder / "out", cache=folder), NullRecorder())


@pytest.mark.parametrize("recovery", ["ghosted", "linear_patch_diag", "prune_and_comp", "none"])
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_sizes_are_those_of_the_checkpoint(
    tiny_folder: Path, text_file: Path, tmp_path: Path, recovery: str, dtype: str
) -> None:
    """Parameters and bytes before and after are what the written file holds, tied weights once."""
    changes: dict[str, Any] = {"recovery": recovery, "dtype": dtype, "evaluation": None}
    spec = tiny_spec(tiny_folder, text_file, remove=REMOVED, **changes)
    expected = estimated(spec, tiny_folder)
    manifest = finished(spec, tmp_path).manifest
    tensors = read_header(tmp_path / "out" / "model.safetensors").values()
    assert expected.parameters_after == manifest.parameters
    assert expected.parameters_before == manifest.source.parameters
    assert expected.disk.checkpoint_bytes == sum(entry.stop - entry.start for entry in tensors)
    assert expected.bytes_after == expected.disk.checkpoint_bytes
    assert expected.dtype == manifest.dtype


@pytest.mark.parametrize("form", RECOVERIES)
def test_sums_are_those_that_repairs_ask_for(form: Any) -> None:
    """The tables name for each repair the matrices of its request, or the activations that it keeps."""
    solver = solver_for(form())
    name = form().name
    products = len(solver.request.products) if isinstance(solver, RecoverySolver) else 0
    stored = len(solver.features) if isinstance(solver, RecoveryTrainer) else 0
    assert PRODUCTS.get(name, 0) == products
    assert STORED_FEATURES.get(name, 0) == stored
    assert {known().name for known in RECOVERIES} >= {*PRODUCTS, *STORED_FEATURES, *OPERATORS}


def test_statistics_are_as_large_as_measured(
    tiny_folder: Path, text_file: Path, generator: torch.Generator
) -> None:
    """Two matrices of float64 a boundary and set of tokens, as accumulated."""
    spec = tiny_spec(tiny_folder, text_file, remove=REMOVED)
    solver = solver_for(spec.recovery)
    assert isinstance(solver, RecoverySolver)
    sums = BoundaryStatistics(solver.request)
    sums.update({name: torch.randn(2, 9, 32, generator=generator) for name in solver.request.features})
    measured = sum(matrix.nbytes for matrix in sums.products.values())
    # Two boundaries, each with a fit and a held-out set.
    assert estimated(spec, tiny_folder).memory.statistics_bytes == 4 * measured
    alone = spec.model_copy(
        update={"calibration": spec.calibration.model_copy(update={"held_out_sequences": 0})}
    )
    assert estimated(alone, tiny_folder).memory.statistics_bytes == 2 * measured


def test_scoring_holds_the_states_of_one_batch(tiny_folder: Path, text_file: Path) -> None:
    """(L + 1) x tokens x C numbers: as large as what the pass keeps of its largest batch."""
    fields = {"sequences": 40, "sequence_length": 64, "dataset": {"kind": "local", "path": str(text_file)}}
    spec = tiny_spec(tiny_folder, text_file, calibration=fields)
    model = tiny_llama(tied=True)
    stream = ResidualStream(model, family_of("llama"))
    batch = next(batches(Windows(torch.zeros(40, 64, dtype=torch.int64), {})))
    measured = sum(state.nbytes for state in stream.read(batch, range(7)).values())
    assert estimated(spec, tiny_folder).memory.scoring_bytes == measured


def test_perplexity_holds_a_batchs_logits_and_what_it_widens(
    tiny_folder: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many positions are foretold to be float32 at once as the loss is asked for."""
    text = {"sequences": 2, "sequence_length": 512}
    spec = tiny_spec(
        tiny_folder,
        text_file,
        strategy={"name": "perplexity", **text},
        calibration={**text, "dataset": {"kind": "local", "path": str(text_file)}},
    )
    widened: list[int] = []

    def noted(logits: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
        widened.append(logits.nbytes)
        return cross_entropy(logits, targets, reduction=reduction)

    cross_entropy = torch.nn.functional.cross_entropy
    monkeypatch.setattr("torch.nn.functional.cross_entropy", noted)
    logits = torch.zeros(2, 512, 320)
    losses_of(logits, torch.zeros(2, 512, dtype=torch.int64))
    assert estimated(spec, tiny_folder).memory.scoring_bytes == logits.nbytes + max(widened)


@pytest.mark.parametrize(("length", "count"), [(64, 3), (64, 100), (3000, 2), (2048, 1)])
def test_batches_are_foreseen(length: int, count: int) -> None:
    """The largest batch has as many tokens as foretold."""
    windows = Windows(torch.zeros(count, length, dtype=torch.int64), {})
    assert batch_tokens(length, count) == max(batch.numel() for batch in batches(windows))


@pytest.mark.parametrize("strategy", ["reverse", "magnitude"])
def test_criteria_without_text_hold_no_states(tiny_folder: Path, text_file: Path, strategy: str) -> None:
    """Nothing beside the weights."""
    spec = tiny_spec(tiny_folder, text_file, strategy=strategy)
    assert estimated(spec, tiny_folder).memory.scoring_bytes == 0


def test_longer_text_needs_no_more_memory_but_cosine_training_more_disk(
    tiny_folder: Path, text_file: Path
) -> None:
    """Statistics are streamed; kept activations grow with the tokens."""

    def needs(sequences: int, recovery: str) -> Estimate:
        fields = {"sequences": sequences, "sequence_length": 64, "held_out_sequences": 0}
        spec = tiny_spec(tiny_folder, text_file, calibration=fields, recovery=recovery)
        return estimated(spec, tiny_folder)

    assert needs(64, "ghosted").memory == needs(640, "ghosted").memory
    few, many = (needs(count, "replace_me_cosine").disk for count in (64, 640))
    assert many.scratch_bytes == 10 * few.scratch_bytes > 0


def test_estimating_needs_no_torch() -> None:
    """A process that only estimates loads no model library."""
    code = "import sys, ghosted_core.estimate; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
