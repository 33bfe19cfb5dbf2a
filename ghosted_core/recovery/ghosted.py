import math

import torch

from ghosted_core import linalg
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import FitReport, RecoveryOperator
from ghosted_core.spec import Ghosted
from ghosted_core.statistics import ENTERING, SHIFT, BoundaryStatistics, StatisticsRequest

GRAM = (ENTERING, ENTERING)  # G = X'X
CROSS = (ENTERING, SHIFT)  # B = X'D


class GhostedSolver:
    """The least-squares operator I + M, M = argmin ||X M - D||_F^2 + ridge ||M||_F^2.

    X = X_pre holds the hidden states entering the removed run, D = X_post - X_pre what the run
    adds to them. The normal equations (X'X + ridge I) M = X'D are solved in float64.

    Reference: Ghosted Layers, arXiv 2605.15491 (W = I + X_pre^+ (X_post - X_pre)).
    """

    request = StatisticsRequest(products=(GRAM, CROSS), energies=(SHIFT,))

    def __init__(self, settings: Ghosted) -> None:
        self.settings = settings

    @property
    def weighting(self) -> str:
        """As the spec says."""
        return self.settings.weighting

    def solve(
        self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics
    ) -> RecoveryOperator:
        """Fit M.

        Raises:
            NonFiniteError: the sums hold infinity or not-a-number.
            IllConditionedError: the hidden states are all zero.
        """
        ridge = self._ridge(fit)
        found = self._least_squares(fit, ridge)
        unseen = relative_residual(found.solution, held_out) if held_out.tokens else None
        symmetric, antisymmetric = linalg.symmetric_shares(found.solution)
        report = FitReport(
            boundary=boundary,
            method=found.method,
            weighting=self.settings.weighting,
            tokens=fit.tokens,
            rank=found.rank,
            condition=found.condition,
            ridge=ridge,
            relative_residual=relative_residual(found.solution, fit),
            held_out_relative_residual=unseen,
            held_out_tokens=held_out.tokens,
            correction_norm=float(torch.linalg.matrix_norm(found.solution)),
            symmetric_share=symmetric,
            antisymmetric_share=antisymmetric,
        )
        return RecoveryOperator(boundary=boundary, correction=found.solution, report=report)

    def _ridge(self, fit: BoundaryStatistics) -> float:
        if self.settings.solver == "truncated":
            return 0.0
        if self.settings.ridge_scale == "absolute":
            return self.settings.ridge
        gram = fit.products[GRAM]
        return self.settings.ridge * float(gram.trace()) / gram.shape[0]

    def _least_squares(self, fit: BoundaryStatistics, ridge: float) -> linalg.LeastSquares:
        gram, cross = fit.products[GRAM], fit.products[CROSS]
        if self.settings.solver == "truncated":
            return linalg.truncated_solve(gram, cross)
        return linalg.ridge_solve(gram, cross, ridge)


def relative_residual(correction: torch.Tensor, statistics: BoundaryStatistics) -> float:
    """||XM - D||_F / ||D||_F over the tokens of `statistics`; 0 where D is 0."""
    energy = statistics.energies[SHIFT]
    if energy == 0:
        return 0.0
    remaining = linalg.residual_energy(
        correction, statistics.products[GRAM], statistics.products[CROSS], energy
    )
    return math.sqrt(remaining / energy)
