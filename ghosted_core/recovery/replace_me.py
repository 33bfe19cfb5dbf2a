from dataclasses import replace

import torch

from ghosted_core import linalg
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import FitReport, MlpMap, product_error, relative
from ghosted_core.spec import ReplaceMe
from ghosted_core.statistics import MLP, MLP_TARGET, SHIFT, BoundaryStatistics, StatisticsRequest

GRAM = (MLP, MLP)  # m'm
CROSS = (MLP, MLP_TARGET)  # m'(x_post - y)


class ReplaceMeSolver:
    """y + m T with T = argmin ||m T - (x_post - y)||_F^2 + ridge ||T||_F^2, y = x_pre - m.

    m is the MLP output of the layer before the cut, so T folds into its last projection.

    Reference: ReplaceMe, arXiv 2505.02819, least squares.
    """

    request = StatisticsRequest(products=(GRAM, CROSS), energies=(MLP_TARGET, SHIFT))
    sequential = False

    def __init__(self, settings: ReplaceMe) -> None:
        self.settings = settings
        self.request = replace(type(self).request, precision=settings.products)

    @property
    def weighting(self) -> str:
        """As the spec says."""
        return self.settings.weighting

    def solve(self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics) -> MlpMap:
        """Fit T.

        Raises:
            NonFiniteError: the sums hold infinity or not-a-number.
            IllConditionedError: the MLP's output is all zero.
        """
        gram = fit.products[GRAM]
        ridge = self.settings.ridge
        if self.settings.ridge_scale == "relative":
            ridge *= float(gram.trace()) / gram.shape[0]
        found = linalg.ridge_solve(gram, fit.products[CROSS], ridge)
        difference = found.solution - torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
        symmetric, antisymmetric = linalg.symmetric_shares(difference)
        report = FitReport(
            boundary=boundary,
            method=found.method,
            weighting=self.settings.weighting,
            tokens=fit.tokens,
            held_out_tokens=held_out.tokens,
            rank=found.rank,
            condition=found.condition,
            ridge=ridge,
            relative_residual=_residual(found.solution, fit),
            held_out_relative_residual=_residual(found.solution, held_out) if held_out.tokens else None,
            correction_norm=float(torch.linalg.matrix_norm(difference)),
            symmetric_share=symmetric,
            antisymmetric_share=antisymmetric,
            first_token_share=fit.opening_share(SHIFT),
            detail=product_error(fit),
        )
        return MlpMap(boundary=boundary, matrix=found.solution, report=report)


def _residual(matrix: torch.Tensor, statistics: BoundaryStatistics) -> float:
    """||m T - (x_post - y)||_F / ||X_post - X_pre||_F: the repaired stream's error, as for every repair."""
    remaining = linalg.residual_energy(
        matrix, statistics.products[GRAM], statistics.products[CROSS], statistics.energies[MLP_TARGET]
    )
    return relative(remaining, statistics.energies[SHIFT])
