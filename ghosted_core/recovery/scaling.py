"""What the repairs that scale channels share: their ratios, and how well a diagonal fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from ghosted_core import linalg
from ghosted_core.errors import NonFiniteError
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import FitReport, relative
from ghosted_core.statistics import BoundaryStatistics, Combination, StatisticsRequest


@dataclass(frozen=True)
class ChannelScaling:
    """Ratios of mean absolute values per channel, in the model's basis or a rotated one."""

    entering: Combination
    leaving: Combination
    shift: Combination

    @property
    def request(self) -> StatisticsRequest:
        """The ratios, and what the residual of a diagonal needs; all of it vectors."""
        return StatisticsRequest(
            energies=(self.shift,),
            diagonals=((self.entering, self.entering), (self.entering, self.shift)),
            ratios=((self.leaving, self.entering),),
        )

    def ratios(self, statistics: BoundaryStatistics) -> Float64[Tensor, " hidden"]:
        """d_k = mean over windows of mean_t |x_post|_k / mean_t |x_pre|_k.

        Raises:
            NonFiniteError: a ratio is infinite or not a number.
        """
        ratios = statistics.ratios[self.leaving, self.entering] / statistics.windows
        if not bool(torch.isfinite(ratios).all()):
            raise NonFiniteError("The ratios of mean absolute activations are not all finite.")
        return ratios

    def report(
        self,
        boundary: Boundary,
        scales: Float64[Tensor, " hidden"],
        fit: BoundaryStatistics,
        held_out: BoundaryStatistics,
        detail: Mapping[str, Any],
    ) -> FitReport:
        """How x -> x diag(scales), in the basis of the ratios, fits."""
        return FitReport(
            boundary=boundary,
            method="ratio of mean absolute values",
            tokens=fit.tokens,
            held_out_tokens=held_out.tokens,
            relative_residual=self._residual(scales, fit),
            held_out_relative_residual=self._residual(scales, held_out) if held_out.tokens else None,
            correction_norm=float(torch.linalg.vector_norm(scales - 1)),
            first_token_share=fit.opening_share(self.shift),
            detail=detail,
        )

    def _residual(self, scales: Tensor, statistics: BoundaryStatistics) -> float:
        energy = statistics.energies[self.shift]
        gram = statistics.diagonals[self.entering, self.entering]
        cross = statistics.diagonals[self.entering, self.shift]
        return relative(linalg.diagonal_residual_energy(scales - 1, gram, cross, energy), energy)
