"""What every repair takes and gives."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from ghosted_core.plan import Boundary
from ghosted_core.statistics import BoundaryStatistics, Feature, StatisticsRequest


@dataclass(frozen=True)
class FitReport:
    """How well the repair of one boundary fits, and what it is like; None where it has no such figure.

    Residuals are ||x' - X_post||_F / ||X_post - X_pre||_F over the weighted tokens, x' being the
    repaired stream: 0 is perfect, 1 is what the cut without repair has. Norms and shares are those of
    the repair's difference from the identity: shares are norms of its symmetric and anti-symmetric
    part over its own. `first_token_share` is how much of ||X_post - X_pre||_F^2 is in the first tokens
    of windows. `detail` holds what only this repair has, as plain JSON values.
    """

    boundary: Boundary
    method: str
    tokens: int
    held_out_tokens: int
    relative_residual: float
    held_out_relative_residual: float | None
    weighting: str = "uniform"
    fit: str = "dense"
    rank: int | None = None
    condition: float | None = None
    ridge: float | None = None
    correction_norm: float | None = None
    symmetric_share: float | None = None
    antisymmetric_share: float | None = None
    first_token_share: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecoveryOperator:
    """x -> x + x M at a boundary, inserted into the model.

    `correction` is M, float64 of shape (hidden, hidden), also where it is diagonal: checkpoints know
    one kind of operator.
    """

    boundary: Boundary
    correction: Float64[Tensor, "hidden hidden"]
    report: FitReport


@dataclass(frozen=True)
class StreamScale:
    """x -> factor x at a boundary, folded into the weights before it; see `folding`."""

    boundary: Boundary
    factor: float
    report: FitReport


@dataclass(frozen=True)
class MlpMap:
    """m -> m T for the MLP output of the layer before a boundary, folded into its last projection.

    `matrix` is T, of shape (hidden, hidden).
    """

    boundary: Boundary
    matrix: Float[Tensor, "hidden hidden"]
    report: FitReport


Outcome = RecoveryOperator | StreamScale | MlpMap


@runtime_checkable
class RecoverySolver(Protocol):
    """Turns the sums over the tokens of a boundary into its repair."""

    @property
    def request(self) -> StatisticsRequest:
        """The sums to accumulate."""

    @property
    def weighting(self) -> str:
        """How calibration tokens are weighted; see `token_weights`."""

    @property
    def sequential(self) -> bool:
        """Whether each boundary is fitted on the stream that the repairs before it leave."""

    def solve(self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics) -> Outcome:
        """The repair fitted on `fit` and tested on `held_out` (which may be empty)."""


@dataclass(frozen=True)
class StoredActivations:
    """The features of all tokens of a boundary, mapped from disk, and the device to work with them on."""

    matrices: Mapping[Feature, Float[Tensor, "_tokens _width"]]
    device: torch.device

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return next(iter(self.matrices.values())).shape[0]

    def take(self, rows: Int64[Tensor, " tokens"]) -> dict[Feature, Float32[Tensor, "tokens _width"]]:
        """These tokens, in memory, on the device, in float32."""
        return {name: matrix[rows].to(self.device).float() for name, matrix in self.matrices.items()}


@runtime_checkable
class RecoveryTrainer(Protocol):
    """Turns the activations themselves, kept on disk, into the repair of a boundary."""

    @property
    def features(self) -> frozenset[Feature]:
        """The activations to keep."""

    def steps(self, tokens: int) -> int:
        """How many steps training on so many tokens takes."""

    def train(
        self,
        boundary: Boundary,
        fit: StoredActivations,
        held_out: StoredActivations,
        advance: Callable[[int], None],
    ) -> Outcome:
        """The repair trained on `fit`, tested on `held_out` (which may be empty).

        `advance` is told of steps that are done.
        """


def product_error(statistics: BoundaryStatistics) -> dict[str, float]:
    """What a report says of float32 products; nothing of float64 ones."""
    if statistics.request.precision == "float64":
        return {}
    return {"float32_product_error": statistics.product_error}


def relative(remaining: float, energy: float) -> float:
    """sqrt(remaining / energy), 0 where there is nothing to repair."""
    return math.sqrt(remaining / energy) if energy else 0.0
