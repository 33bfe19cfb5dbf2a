from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ghosted_core.hadamard import rotation
from ghosted_core.plan import Boundary
from ghosted_core.recovery import RecoveryOperator, StreamScale
from ghosted_core.recovery.linear_patch_diag import LinearPatchDiagSolver
from ghosted_core.spec import LinearPatchDiag
from ghosted_core.statistics import BoundaryStatistics, Feature
from tests.repairing import lively_llama, repaired, stored, texts_of

CUTS = [[2, 3], [0, 4, 5]]


def ratios(entering: Tensor, leaving: Tensor) -> Tensor:
    """A window at a time, as the papers' equations are written."""
    each = [
        after.abs().mean(dim=0) / before.abs().mean(dim=0)
        for before, after in zip(entering, leaving, strict=True)
    ]
    return torch.stack(each).mean(dim=0)


def residual(entering: Tensor, leaving: Tensor, after: Tensor) -> float:
    return float((after - leaving).norm() / (leaving - entering).norm())


@pytest.mark.parametrize("removed", CUTS)
def test_the_diagonal_holds_the_ratios_of_mean_magnitudes(removed: list[int], tmp_path: Path) -> None:
    """Mean over sequences of per-sequence ratios, from the streamed sums, at several boundaries."""
    model, texts = lively_llama(), texts_of(windows=5)
    _, outcomes, _ = repaired(model, removed, tmp_path, "linear_patch_diag", texts)
    for outcome in outcomes:
        assert isinstance(outcome, RecoveryOperator)
        seen = stored(model, texts.calibration.tokens, outcome.boundary)
        scales = ratios(seen.entering, seen.leaving)
        assert_close(outcome.correction, torch.diag(scales - 1), rtol=1e-5, atol=1e-6)
        expected = residual(seen.entering, seen.leaving, seen.entering * scales)
        assert outcome.report.relative_residual == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("hidden", [32, 36])
def test_the_rotated_patch_measures_after_the_rotation(hidden: int, tmp_path: Path) -> None:
    """x H D H' with D from |x H|, by Hadamard or its substitute; the report names which."""
    model, texts = lively_llama(hidden_size=hidden, num_attention_heads=2), texts_of(windows=5)
    _, (outcome,), _ = repaired(model, [2, 3], tmp_path, "linear_patch_rotate", texts)
    assert isinstance(outcome, RecoveryOperator)
    seen, turn = stored(model, texts.calibration.tokens, outcome.boundary), rotation(hidden)
    scales = ratios(seen.entering @ turn.matrix, seen.leaving @ turn.matrix)
    operator = turn.matrix @ torch.diag(scales) @ turn.matrix.mT
    identity = torch.eye(hidden, dtype=torch.float64)
    assert_close(outcome.correction, operator - identity, rtol=1e-5, atol=1e-5)
    expected = residual(seen.entering, seen.leaving, seen.entering @ operator)
    assert outcome.report.relative_residual == pytest.approx(expected, rel=1e-5)
    assert outcome.report.detail["rotation"] == turn.name


def test_prune_and_comp_takes_the_mean_of_the_ratios(tmp_path: Path) -> None:
    """One number: over sequences and channels; judged on held-out tokens too."""
    model, texts = lively_llama(), texts_of(windows=5)
    _, (outcome,), _ = repaired(model, [2, 3], tmp_path, "prune_and_comp", texts)
    assert isinstance(outcome, StreamScale)
    seen = stored(model, texts.calibration.tokens, outcome.boundary)
    factor = float(ratios(seen.entering, seen.leaving).mean())
    assert outcome.factor == pytest.approx(factor, rel=1e-6)
    unseen = stored(model, texts.held_out.tokens, outcome.boundary)
    expected = residual(unseen.entering, unseen.leaving, unseen.entering * factor)
    assert outcome.report.held_out_relative_residual == pytest.approx(expected, rel=1e-5)


def test_a_planted_scaling_is_recovered_and_silent_channels_stay(generator: torch.Generator) -> None:
    """Where each channel is scaled, the scales come out, signs aside; where nothing flows, 1."""
    entering = torch.randn(3, 50, 8, generator=generator, dtype=torch.float64)
    entering[..., 5] = 0
    scales = torch.rand(8, generator=generator, dtype=torch.float64) + 0.5
    solver = LinearPatchDiagSolver(LinearPatchDiag())
    sums = BoundaryStatistics(solver.request)
    sums.update({Feature.ENTERING: entering, Feature.LEAVING: entering * scales})
    outcome = solver.solve(Boundary(1, 2), sums, BoundaryStatistics(solver.request))
    scales[5] = 1
    assert_close(outcome.correction, torch.diag(scales - 1))
    assert outcome.report.relative_residual == pytest.approx(0, abs=1e-7)
    assert outcome.report.held_out_relative_residual is None
