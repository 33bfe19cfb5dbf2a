"""Sums over calibration tokens at one boundary, from which every linear repair follows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ghosted_core.errors import NonFiniteError
from ghosted_core.statistics.features import Combination, Feature, StatisticsRequest


@dataclass
class BoundaryStatistics:
    """Weighted sums over the tokens seen so far.

    Row vectors: operators act from the right. Sums, not means, so that `merge` is addition and
    neither batching nor sharding matters. float64, because the normal equations square the
    condition number. Size: one width x width matrix a product, whatever the number of tokens.

    Attributes:
        products: A' diag(w) B for each requested pair, float64, shape (width of A, width of B).
        energies: sum of w_t ||a_t||^2 for each requested combination.
        tokens: number of tokens with a weight above zero.
        weight: sum of the weights.
    """

    request: StatisticsRequest
    products: dict[tuple[Combination, Combination], Tensor] = field(default_factory=dict)
    energies: dict[Combination, float] = field(default_factory=dict)
    tokens: int = 0
    weight: float = 0.0

    def update(
        self,
        features: Mapping[Feature, Float[Tensor, "tokens width"]],
        weights: Float[Tensor, " tokens"] | None = None,
    ) -> None:
        """Add a batch of tokens; `weights` (default 1 each) must not be negative.

        Raises:
            NonFiniteError: an activation is infinite or not a number.
        """
        values = self._in_float64(features)
        count = next(iter(features.values())).shape[0]
        if weights is None:
            self._add(values, values, weight=float(count), tokens=count)
            return
        column = weights.to(torch.float64)[:, None]
        weighted = {name: value * column for name, value in values.items()}
        self._add(values, weighted, weight=float(weights.sum()), tokens=int((weights > 0).sum()))

    def _in_float64(self, features: Mapping[Feature, Tensor]) -> dict[Combination, Tensor]:
        wanted = {side for pair in self.request.products for side in pair} | set(self.request.energies)
        # Widened before the subtraction: D is small against X, and its digits are the signal.
        wide = {name: value.to(torch.float64) for name, value in features.items()}
        return {combination: combination.of(wide) for combination in wanted}

    def _add(
        self,
        values: Mapping[Combination, Tensor],
        weighted: Mapping[Combination, Tensor],
        *,
        weight: float,
        tokens: int,
    ) -> None:
        for combination in self.request.energies:
            energy = float(torch.sum(values[combination] * weighted[combination]))
            self.energies[combination] = self.energies.get(combination, 0.0) + energy
        for pair in self.request.products:
            product = weighted[pair[0]].mT @ values[pair[1]]
            self.products[pair] = self.products[pair].add_(product) if pair in self.products else product
        self.weight += weight
        self.tokens += tokens
        self._require_finite()

    def _require_finite(self) -> None:
        # A sum of squares over the batch: one number tells of every value in it.
        for combination, energy in self.energies.items():
            if not torch.isfinite(torch.tensor(energy)):
                raise NonFiniteError(f"The activations '{combination.name}' are not all finite.")

    def merge(self, other: "BoundaryStatistics") -> "BoundaryStatistics":
        """The statistics of both sets of tokens together."""
        if self.request != other.request:
            raise ValueError("Statistics of different requests cannot be merged.")
        keys = self.products.keys() | other.products.keys()
        names = self.energies.keys() | other.energies.keys()
        return type(self)(
            request=self.request,
            products={key: _sum(self.products.get(key), other.products.get(key)) for key in keys},
            energies={name: self.energies.get(name, 0.0) + other.energies.get(name, 0.0) for name in names},
            tokens=self.tokens + other.tokens,
            weight=self.weight + other.weight,
        )


def _sum(left: Tensor | None, right: Tensor | None) -> Tensor:
    # One of them is there: the key came from one of the two sides.
    parts = [part for part in (left, right) if part is not None]
    return parts[0] + parts[1] if len(parts) > 1 else parts[0].clone()
