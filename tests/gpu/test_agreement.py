"""What the GPU computes is what the CPU computes, on models and activations made here."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ghosted_core.model.families import SUPPORTED
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import NullRecorder
from ghosted_core.recovery.ghosted import GhostedSolver
from ghosted_core.spec import Ghosted, JobSpec
from ghosted_core.statistics import BoundaryStatistics, Feature, LayerSimilarity
from ghosted_core.testing import PlantedBoundary, tiny_model
from tests.jobs import tiny_spec

pytestmark = pytest.mark.gpu

BOUNDARY = Boundary(1, 3)
RECOVERIES: list[dict[str, Any]] = [
    {"name": "none"},
    {"name": "ghosted"},
    {"name": "ghosted", "fit": "sequential", "ridge": "auto"},
    {"name": "prune_and_comp"},
    {"name": "linear_patch_diag"},
    {"name": "linear_patch_rotate"},
    {"name": "replace_me"},
    {"name": "replace_me_cosine"},
]


def sums(planted: PlantedBoundary, device: torch.device, settings: Ghosted) -> BoundaryStatistics:
    """The sums of the planted activations, accumulated on the device in three batches."""
    statistics = BoundaryStatistics(GhostedSolver(settings).request)
    pairs = zip(planted.entering.chunk(3), planted.leaving.chunk(3), strict=True)
    for entering, leaving in pairs:
        found = {Feature.ENTERING: entering.to(device), Feature.LEAVING: leaving.to(device)}
        statistics.update(found)
    return statistics


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_sums_agree(gpu: torch.device, precision: Any) -> None:
    """Products and energies of the same activations are equal up to the rounding of their precision."""
    planted, settings = PlantedBoundary.make(noise=0.1), Ghosted(products=precision)
    here, there = (sums(planted, device, settings) for device in (torch.device("cpu"), gpu))
    tolerance = 1e-12 if precision == "float64" else 1e-5
    for pair, product in here.products.items():
        scale = float(torch.linalg.matrix_norm(product))
        distance = float(torch.linalg.matrix_norm(there.products[pair].cpu() - product))
        assert distance <= tolerance * scale
    assert there.energies == pytest.approx(here.energies, rel=1e-12)
    assert there.tokens == here.tokens


@pytest.mark.parametrize(
    "settings",
    [Ghosted(), Ghosted(ridge="auto"), Ghosted(solver="truncated")],
    ids=["ridge", "auto", "truncated"],
)
def test_solutions_agree(gpu: torch.device, settings: Ghosted) -> None:
    """Every solver finds the same operator on both devices, and without noise the planted one."""
    planted, solver = PlantedBoundary.make(), GhostedSolver(settings)
    found = []
    for device in (torch.device("cpu"), gpu):
        fit = sums(planted, device, settings)
        found.append(solver.solve(BOUNDARY, fit, fit).correction.cpu())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(found[1], planted.correction, rtol=0, atol=1e-4)


def test_layer_similarities_agree(gpu: torch.device) -> None:
    """The cosines of all pairs of states, from which layers are chosen, are the same."""
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(2, 40, 32, generator=generator) for _ in range(5)]
    found = []
    for device in (torch.device("cpu"), gpu):
        similarity = LayerSimilarity.empty(4)
        similarity.update([state.to(device) for state in states])
        found.append(similarity.token_mean())
    torch.testing.assert_close(found[1].cpu(), found[0].cpu(), rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("model_type", SUPPORTED)
def test_patched_models_agree(gpu: torch.device, generator: torch.Generator, model_type: str) -> None:
    """Each family, cut and repaired on the GPU, gives the logits that it gives on the CPU."""
    plan = PruningPlan.from_removed([0, 2, 3], layer_count=6)
    tokens = torch.arange(3, 40)[None]
    operators = {b: 0.1 * torch.randn(32, 32, generator=generator) for b in plan.boundaries}
    here, there = tiny_model(model_type), tiny_model(model_type).to(gpu)
    moved = {boundary: operator.to(gpu) for boundary, operator in operators.items()}
    pairs = [
        (repaired_model(here, plan, operators), repaired_model(there, plan, moved)),
        (pruned_model(here, plan), pruned_model(there, plan)),
    ]
    for on_cpu, on_gpu in pairs:
        torch.testing.assert_close(
            on_gpu(tokens.to(gpu)).logits.cpu(), on_cpu(tokens).logits, rtol=1e-3, atol=1e-4
        )


def run(spec: JobSpec, folder: Path, device: torch.device) -> JobResult:
    """The whole job on the device."""
    options = RunOptions(out=folder / device.type, cache=folder / "cache", device=device.type)
    return compress(spec, options, NullRecorder())


def check_equal(here: JobResult, there: JobResult) -> None:
    """The same layers went, and weights, operators and perplexities are those of the CPU."""
    assert there.manifest.plan.removed == here.manifest.plan.removed
    assert there.manifest.metrics == pytest.approx(here.manifest.metrics, rel=1e-3)
    stored = [load_file(result.path / "model.safetensors") for result in (here, there)]
    assert stored[0].keys() == stored[1].keys()
    for name, tensor in stored[0].items():
        torch.testing.assert_close(stored[1][name], tensor, rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("recovery", RECOVERIES, ids=lambda recovery: "-".join(recovery.values()))
def test_whole_jobs_agree(
    gpu: torch.device, tiny_folder: Path, text_file: Path, tmp_path: Path, recovery: dict[str, Any]
) -> None:
    """From text to checkpoint, every repair comes out as on the CPU."""
    spec = tiny_spec(tiny_folder, text_file, remove=[2, 3], recovery=recovery)
    check_equal(*(run(spec, tmp_path, device) for device in (torch.device("cpu"), gpu)))


@pytest.mark.parametrize("strategy", ["streamline", "shortgpt", "angular", "taylor:unprotected", "sleb"])
def test_layers_are_chosen_alike(
    gpu: torch.device, tiny_folder: Path, text_file: Path, tmp_path: Path, strategy: str
) -> None:
    """Criteria that read the model choose the same layers on both devices."""
    name, _, unprotected = strategy.partition(":")
    settings = {"protect": False} if unprotected else {}
    spec = tiny_spec(tiny_folder, text_file, strategy={"name": name, **settings})
    check_equal(*(run(spec, tmp_path, device) for device in (torch.device("cpu"), gpu)))
