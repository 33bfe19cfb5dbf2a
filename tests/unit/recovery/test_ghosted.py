import math

import pytest
import torch
from torch.testing import assert_close

from ghosted_core.errors import IllConditionedError, InvalidSpecError
from ghosted_core.plan import Boundary
from ghosted_core.recovery.ghosted import RIDGE_GRID, GhostedSolver
from ghosted_core.spec import Ghosted
from ghosted_core.statistics import BoundaryStatistics
from ghosted_core.testing import PlantedBoundary

BOUNDARY = Boundary(2, 5)


def solve(planted: PlantedBoundary, **settings: object) -> tuple[torch.Tensor, object]:
    solver = GhostedSolver(Ghosted.model_validate(settings))
    statistics = planted.statistics(solver.request, batches=5)
    operator = solver.solve(BOUNDARY, statistics, BoundaryStatistics(solver.request))
    return operator.correction, operator.report


@pytest.mark.parametrize("settings", [{"ridge": 0.0}, {"solver": "truncated"}])
def test_a_planted_operator_is_recovered(settings: dict[str, object]) -> None:
    """Where the run of layers is linear, its operator comes out to float64 rounding."""
    planted = PlantedBoundary.make(tokens=2000, hidden=48)
    correction, report = solve(planted, **settings)
    assert_close(correction, planted.correction, rtol=0, atol=1e-12)
    assert report.relative_residual < 1e-5


@pytest.mark.parametrize("settings", [{"ridge": 0.0}, {"solver": "truncated"}])
def test_the_streamed_solution_is_the_stored_one(settings: dict[str, object]) -> None:
    """Sums give what torch.linalg.lstsq gives on all the activations at once."""
    planted = PlantedBoundary.make(tokens=700, hidden=32, noise=0.5)
    correction, _ = solve(planted, **settings)
    stored = torch.linalg.lstsq(planted.entering, planted.leaving - planted.entering).solution
    assert_close(correction, stored, rtol=0, atol=1e-11)


def test_the_ridge_is_the_papers(generator: torch.Generator) -> None:
    """(X'X + ridge I) M = X'D, the ridge in the units of X'X or of its mean diagonal."""
    planted = PlantedBoundary.make(tokens=300, hidden=20, noise=0.3)
    shift = planted.leaving - planted.entering
    gram = planted.entering.mT @ planted.entering
    for settings, ridge in (
        ({"ridge": 7.0}, 7.0),
        ({"ridge": 0.1, "ridge_scale": "relative"}, 0.1 * float(gram.trace()) / 20),
    ):
        correction, report = solve(planted, **settings)
        direct = torch.linalg.solve(
            gram + ridge * torch.eye(20, dtype=gram.dtype), planted.entering.mT @ shift
        )
        assert_close(correction, direct, rtol=0, atol=1e-12)
        assert report.ridge == pytest.approx(ridge)


def test_the_residual_needs_no_activations() -> None:
    """The residual from the sums is the direct one within 1e-10 of the energy."""
    planted = PlantedBoundary.make(tokens=900, hidden=32, noise=0.7)
    correction, report = solve(planted)
    shift = planted.leaving - planted.entering
    direct = float((planted.entering @ correction - shift).square().sum() / shift.square().sum())
    assert report.relative_residual**2 == pytest.approx(direct, abs=1e-10)


def test_held_out_tokens_are_judged_apart() -> None:
    """With few tokens the fit flatters itself; the held-out residual tells."""
    seen, unseen = (PlantedBoundary.make(tokens=40, hidden=32, noise=1.0, seed=s) for s in (1, 2))
    solver = GhostedSolver(Ghosted())
    fit, held_out = (planted.statistics(solver.request) for planted in (seen, unseen))
    report = solver.solve(BOUNDARY, fit, held_out).report
    assert report.held_out_relative_residual is not None
    assert report.held_out_relative_residual > 2 * report.relative_residual
    assert (report.tokens, report.held_out_tokens) == (40, 40)


@pytest.mark.parametrize("settings", [{}, {"ridge": 0.0}, {"solver": "truncated"}])
@pytest.mark.parametrize("tokens", [8, 31])
def test_fewer_tokens_than_channels_give_the_minimum_norm(settings: dict[str, object], tokens: int) -> None:
    """A singular Gram matrix is solved all the same, and the rank says so."""
    planted = PlantedBoundary.make(tokens=tokens, hidden=32)
    correction, report = solve(planted, **settings)
    expected = torch.linalg.pinv(planted.entering) @ (planted.leaving - planted.entering)
    assert_close(correction, expected, rtol=0, atol=1e-5)
    if settings.get("ridge") != 0.0 and "solver" not in settings:
        assert bool(torch.isfinite(correction).all())
    else:
        assert report.rank == tokens


def test_repeated_sequences_do_not_break_the_solve() -> None:
    """Duplicated text makes X'X singular, not the answer infinite."""
    planted = PlantedBoundary.make(tokens=10, hidden=32)
    doubled = PlantedBoundary(planted.entering.repeat(4, 1), planted.leaving.repeat(4, 1), planted.correction)
    correction, report = solve(doubled, ridge=0.0)
    assert bool(torch.isfinite(correction).all())
    assert report.rank == 10
    assert report.method == "eigen"


def test_silent_activations_are_a_typed_error() -> None:
    """All-zero hidden states leave nothing to fit."""
    zero = torch.zeros(16, 8, dtype=torch.float64)
    planted = PlantedBoundary(zero, zero, torch.zeros(8, 8, dtype=torch.float64))
    with pytest.raises(IllConditionedError):
        solve(planted, ridge=0.0)


def test_symmetric_and_antisymmetric_shares_are_orthogonal() -> None:
    """Squares of the shares add up to one; a rotation's generator is all anti-symmetric."""
    _, report = solve(PlantedBoundary.make(tokens=600, hidden=24))
    assert math.hypot(report.symmetric_share, report.antisymmetric_share) == pytest.approx(1)
    planted = PlantedBoundary.make(tokens=600, hidden=24)
    rotation = planted.correction - planted.correction.mT
    turned = PlantedBoundary(planted.entering, planted.entering + planted.entering @ rotation, rotation)
    _, report = solve(turned, ridge=0.0)
    assert report.antisymmetric_share == pytest.approx(1)
    assert report.symmetric_share == pytest.approx(0, abs=1e-10)


def held_out_residuals(fit: BoundaryStatistics, held_out: BoundaryStatistics) -> list[float]:
    """What each ridge of the grid gives when it is asked for by name."""
    found = []
    for ridge in RIDGE_GRID:
        solver = GhostedSolver(Ghosted(ridge=ridge, ridge_scale="relative"))
        residual = solver.solve(BOUNDARY, fit, held_out).report.held_out_relative_residual
        assert residual is not None
        found.append(residual)
    return found


@pytest.mark.parametrize(("tokens", "noise"), [(40, 3.0), (64, 0.5), (4000, 0.01)])
def test_the_automatic_ridge_is_the_grids_best_on_held_out_tokens(tokens: int, noise: float) -> None:
    """Little noisy text wants a large ridge, much clean text a small one; each is found."""
    fit, held_out = (
        PlantedBoundary.make(tokens=count, hidden=32, noise=noise, seed=seed).statistics(
            GhostedSolver.request
        )
        for seed, count in ((1, tokens), (2, 500))
    )
    report = GhostedSolver(Ghosted(ridge="auto")).solve(BOUNDARY, fit, held_out).report
    expected = held_out_residuals(fit, held_out)
    assert report.held_out_relative_residual == pytest.approx(min(expected), rel=1e-6)
    assert report.detail["held_out_residuals"] == pytest.approx(expected, rel=1e-6)
    chosen = RIDGE_GRID[expected.index(min(expected))]
    gram = fit.products[next(iter(fit.products))]
    assert report.ridge == pytest.approx(chosen * float(gram.trace()) / 32)


def test_the_automatic_ridge_follows_the_noise() -> None:
    """It is larger where there is less to learn from."""
    ridges = []
    for tokens, noise in ((36, 3.0), (4000, 0.01)):
        planted = PlantedBoundary.make(tokens=tokens + 400, hidden=32, noise=noise)
        halves = [
            PlantedBoundary(planted.entering[part], planted.leaving[part], planted.correction)
            for part in (slice(None, tokens), slice(tokens, None))
        ]
        fit, held_out = (half.statistics(GhostedSolver.request) for half in halves)
        report = GhostedSolver(Ghosted(ridge="auto")).solve(BOUNDARY, fit, held_out).report
        assert report.ridge is not None
        ridges.append(report.ridge / tokens)
    assert ridges[0] > 10 * ridges[1]


def test_the_automatic_ridge_needs_held_out_tokens() -> None:
    """On the fitted ones the smallest would always win."""
    solver = GhostedSolver(Ghosted(ridge="auto"))
    fit = PlantedBoundary.make().statistics(solver.request)
    with pytest.raises(InvalidSpecError, match="held-out"):
        solver.solve(BOUNDARY, fit, BoundaryStatistics(solver.request))


def test_the_automatic_ridge_survives_a_singular_gram_matrix() -> None:
    """Fewer tokens than channels: finite, and no worse than the cut on held-out tokens."""
    planted = PlantedBoundary.make(tokens=220, hidden=32, noise=0.1)
    halves = [
        PlantedBoundary(planted.entering[part], planted.leaving[part], planted.correction)
        for part in (slice(None, 20), slice(20, None))
    ]
    fit, held_out = (half.statistics(GhostedSolver.request) for half in halves)
    operator = GhostedSolver(Ghosted(ridge="auto")).solve(BOUNDARY, fit, held_out)
    assert bool(torch.isfinite(operator.correction).all())
    assert operator.report.held_out_relative_residual is not None
    assert operator.report.held_out_relative_residual < 1


def test_the_fast_path_finds_the_same_operator_and_reports_its_error() -> None:
    """float32 products into float64 totals: the operator agrees to their rounding."""
    planted = PlantedBoundary.make(tokens=2000, hidden=32, noise=0.1)
    exact, _ = solve(planted)
    fast, report = solve(planted, products="float32")
    assert_close(fast, exact, rtol=0, atol=1e-5)
    assert 0 < report.detail["float32_product_error"] < 1e-6
