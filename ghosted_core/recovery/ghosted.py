from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ghosted_core import linalg
from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import FitReport, RecoveryOperator, product_error, relative
from ghosted_core.spec import Ghosted
from ghosted_core.statistics import ENTERING, SHIFT, BoundaryStatistics, StatisticsRequest

GRAM = (ENTERING, ENTERING)  # G = X'X
CROSS = (ENTERING, SHIFT)  # B = X'D
# What `ridge: auto` chooses from, in units of G's mean diagonal entry.
RIDGE_GRID = (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class _Fit:
    found: linalg.LeastSquares
    ridge: float
    detail: Mapping[str, Any] = field(default_factory=dict)


class GhostedSolver:
    """The least-squares operator I + M, M = argmin ||X M - D||_F^2 + ridge ||M||_F^2.

    X = X_pre holds the hidden states entering the removed run, D = X_post - X_pre what the run
    adds to them. The normal equations (X'X + ridge I) M = X'D are solved in float64.

    Reference: Ghosted Layers, arXiv 2605.15491 (W = I + X_pre^+ (X_post - X_pre)).
    """

    request = StatisticsRequest(products=(GRAM, CROSS), energies=(SHIFT,))

    def __init__(self, settings: Ghosted) -> None:
        self.settings = settings
        self.request = replace(type(self).request, precision=settings.products)

    @property
    def weighting(self) -> str:
        """As the spec says."""
        return self.settings.weighting

    @property
    def sequential(self) -> bool:
        """As the spec says."""
        return self.settings.fit == "sequential"

    def solve(
        self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics
    ) -> RecoveryOperator:
        """Fit M.

        Raises:
            InvalidSpecError: the ridge is to be chosen, and there are no held-out tokens.
            NonFiniteError: the sums hold infinity or not-a-number.
            IllConditionedError: the hidden states are all zero.
        """
        fitted = self._fit(fit, held_out)
        found = fitted.found
        symmetric, antisymmetric = linalg.symmetric_shares(found.solution)
        report = FitReport(
            boundary=boundary,
            method=found.method,
            weighting=self.settings.weighting,
            fit=self.settings.fit,
            tokens=fit.tokens,
            rank=found.rank,
            condition=found.condition,
            ridge=fitted.ridge,
            relative_residual=relative_residual(found.solution, fit),
            held_out_relative_residual=_unseen(found.solution, held_out),
            held_out_tokens=held_out.tokens,
            correction_norm=float(torch.linalg.matrix_norm(found.solution)),
            symmetric_share=symmetric,
            antisymmetric_share=antisymmetric,
            first_token_share=fit.opening_share(SHIFT),
            detail={**fitted.detail, **product_error(fit)},
        )
        return RecoveryOperator(boundary=boundary, correction=found.solution, report=report)

    def _fit(self, fit: BoundaryStatistics, held_out: BoundaryStatistics) -> _Fit:
        gram, cross = fit.products[GRAM], fit.products[CROSS]
        if self.settings.solver == "truncated":
            return _Fit(linalg.truncated_solve(gram, cross), ridge=0.0)
        ridge = self.settings.ridge
        if ridge == "auto":
            return _chosen_on(held_out, fit)
        if self.settings.ridge_scale == "relative":
            ridge *= _mean_diagonal(gram)
        return _Fit(linalg.ridge_solve(gram, cross, ridge), ridge)


def _chosen_on(held_out: BoundaryStatistics, fit: BoundaryStatistics) -> _Fit:
    """The fit whose ridge, of the grid, leaves least on the held-out tokens; the first of equals."""
    if not held_out.tokens:
        raise InvalidSpecError("'ridge: auto' is chosen on held-out tokens, and there are none.")
    gram = fit.products[GRAM]
    ridges = [share * _mean_diagonal(gram) for share in RIDGE_GRID]
    best: linalg.LeastSquares | None = None
    residuals: list[float] = []
    # One solution at a time: each is as large as the Gram matrix.
    for found in linalg.ridge_path(gram, fit.products[CROSS], ridges):
        residual = relative_residual(found.solution, held_out)
        if best is None or residual < min(residuals):
            best = found
        residuals.append(residual)
    if best is None:
        raise ValueError("the grid of ridges is empty")
    detail = {"relative_ridges": list(RIDGE_GRID), "held_out_residuals": residuals}
    return _Fit(best, ridges[residuals.index(min(residuals))], detail)


def _mean_diagonal(gram: torch.Tensor) -> float:
    return float(gram.trace()) / gram.shape[0]


def relative_residual(correction: torch.Tensor, statistics: BoundaryStatistics) -> float:
    """||XM - D||_F / ||D||_F over the tokens of `statistics`; 0 where D is 0."""
    energy = statistics.energies[SHIFT]
    if energy == 0:
        return 0.0
    remaining = linalg.residual_energy(
        correction, statistics.products[GRAM], statistics.products[CROSS], energy
    )
    return relative(remaining, energy)


def _unseen(correction: torch.Tensor, held_out: BoundaryStatistics) -> float | None:
    return relative_residual(correction, held_out) if held_out.tokens else None
