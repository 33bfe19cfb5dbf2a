"""What every repair takes and gives."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float64
from torch import Tensor

from ghosted_core.plan import Boundary
from ghosted_core.statistics import BoundaryStatistics, StatisticsRequest


@dataclass(frozen=True)
class FitReport:
    """How well the operator of one boundary fits, and what it is like.

    Residuals are ||XM - D||_F / ||D||_F over the weighted tokens: 0 is perfect, 1 is what the cut
    without repair has. Shares are norms of the symmetric and the anti-symmetric part of M over the
    norm of M.
    """

    boundary: Boundary
    method: str
    weighting: str
    tokens: int
    rank: int
    condition: float
    ridge: float
    relative_residual: float
    held_out_relative_residual: float | None
    held_out_tokens: int
    correction_norm: float
    symmetric_share: float
    antisymmetric_share: float


@dataclass(frozen=True)
class RecoveryOperator:
    """x -> x + x M at a boundary; `correction` is M, float64 of shape (hidden, hidden)."""

    boundary: Boundary
    correction: Float64[Tensor, "hidden hidden"]
    report: FitReport


@runtime_checkable
class RecoverySolver(Protocol):
    """Turns the statistics of a boundary into the operator that repairs it."""

    @property
    def request(self) -> StatisticsRequest:
        """The sums to accumulate."""

    @property
    def weighting(self) -> str:
        """How calibration tokens are weighted; see `token_weights`."""

    def solve(
        self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics
    ) -> RecoveryOperator:
        """The operator fitted on `fit` and tested on `held_out` (which may be empty)."""
