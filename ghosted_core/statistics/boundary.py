"""Sums over calibration tokens at one boundary, from which every closed-form repair follows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ghosted_core.errors import NonFiniteError
from ghosted_core.statistics.features import Combination, Feature, Pair, StatisticsRequest, mean_ratios


@dataclass
class BoundaryStatistics:
    """Weighted sums over the tokens seen so far.

    Row vectors: operators act from the right. Sums, not means, so that `merge` is addition and
    neither batching nor sharding matters. float64, because the normal equations square the
    condition number. Size: one width x width matrix a product, whatever the number of tokens.

    Attributes:
        products: A' diag(w) B for each requested pair, float64, shape (width of A, width of B).
        diagonals: the diagonal of the same, shape (width,).
        ratios: sum over windows of mean_t |a| / mean_t |b| for each requested pair, shape (width,).
        energies: sum of w_t ||a_t||^2 for each requested combination.
        openings: the part of each of them that is in the first token of its window.
        tokens: number of tokens with a weight above zero.
        windows: number of windows.
        weight: sum of the weights.
        product_error: how far float32 products were off float64 ones in the first batch, relative, in
            the Frobenius norm; 0 where products are float64.
    """

    request: StatisticsRequest
    products: dict[Pair, Tensor] = field(default_factory=dict)
    diagonals: dict[Pair, Tensor] = field(default_factory=dict)
    ratios: dict[Pair, Tensor] = field(default_factory=dict)
    energies: dict[Combination, float] = field(default_factory=dict)
    openings: dict[Combination, float] = field(default_factory=dict)
    tokens: int = 0
    windows: int = 0
    weight: float = 0.0
    product_error: float = 0.0

    def update(
        self,
        features: Mapping[Feature, Float[Tensor, "*windows tokens width"]],
        weights: Float[Tensor, "*windows tokens"] | None = None,
    ) -> None:
        """Add a batch of tokens; `weights` (default 1 each) must not be negative.

        Whole windows, windows first; a matrix of tokens is one window.

        Raises:
            NonFiniteError: an activation is infinite or not a number.
        """
        # Widened before the subtraction: D is small against X, and its digits are the signal.
        wide = {name: value.to(torch.float64) for name, value in features.items()}
        values = {combination: combination.of(wide) for combination in self.request.combinations}
        some = next(iter(features.values()))
        self._add_ratios(values, None if weights is None else weights.to(torch.float64))
        self._add_sums(values, weights)
        count = some.shape[:-1].numel()
        self.tokens += count if weights is None else int((weights > 0).sum())
        self.weight += float(count if weights is None else weights.sum(dtype=torch.float64))
        self.windows += some.shape[:-2].numel()
        self._require_finite()

    def _add_ratios(self, values: Mapping[Combination, Tensor], weights: Tensor | None) -> None:
        for above, below in self.request.ratios:
            ratios = mean_ratios(values[above], values[below], weights)
            _accumulate(self.ratios, (above, below), ratios.reshape(-1, ratios.shape[-1]).sum(dim=0))

    def _add_sums(self, values: Mapping[Combination, Tensor], weights: Tensor | None) -> None:
        rows = {combination: value.flatten(0, -2) for combination, value in values.items()}
        column = None if weights is None else weights.flatten().to(torch.float64)[:, None]
        weighted = rows if column is None else {name: value * column for name, value in rows.items()}
        for combination in self.request.energies:
            of_tokens = (rows[combination] * weighted[combination]).sum(dim=-1)
            first = of_tokens.view(values[combination].shape[:-1])[..., 0]
            for totals, part in ((self.energies, of_tokens), (self.openings, first)):
                totals[combination] = totals.get(combination, 0.0) + float(part.sum())
        for left, right in self.request.diagonals:
            _accumulate(self.diagonals, (left, right), (weighted[left] * rows[right]).sum(dim=0))
        for left, right in self.request.products:
            _accumulate(self.products, (left, right), self._product(weighted[left], rows[right]))

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        if self.request.precision == "float64":
            return left.mT @ right
        fast = (left.float().mT @ right.float()).to(torch.float64)
        if not self.windows:
            exact = left.mT @ right
            error = float(torch.linalg.matrix_norm(fast - exact) / torch.linalg.matrix_norm(exact))
            # A product of zeros is exact, though the quotient says nothing.
            self.product_error = max(self.product_error, error if math.isfinite(error) else 0.0)
        return fast

    def _require_finite(self) -> None:
        # A sum of squares over the batch: one number tells of every value in it.
        for combination, energy in self.energies.items():
            if not math.isfinite(energy):
                raise NonFiniteError(f"The activations '{combination.name}' are not all finite.")

    def opening_share(self, combination: Combination) -> float | None:
        """The share of its energy that is in the first tokens of windows; None where that is not known."""
        energy, opening = self.energies.get(combination), self.openings.get(combination)
        return opening / energy if energy and opening is not None else None

    def merge(self, other: "BoundaryStatistics") -> "BoundaryStatistics":
        """The statistics of both sets of tokens together."""
        if self.request != other.request:
            raise ValueError("Statistics of different requests cannot be merged.")
        return type(self)(
            request=self.request,
            products=_sums(self.products, other.products),
            diagonals=_sums(self.diagonals, other.diagonals),
            ratios=_sums(self.ratios, other.ratios),
            energies=_added(self.energies, other.energies),
            openings=_added(self.openings, other.openings),
            tokens=self.tokens + other.tokens,
            windows=self.windows + other.windows,
            weight=self.weight + other.weight,
            product_error=max(self.product_error, other.product_error),
        )


def _accumulate(totals: dict[Pair, Tensor], pair: Pair, value: Tensor) -> None:
    totals[pair] = totals[pair].add_(value) if pair in totals else value


def _added(left: Mapping[Combination, float], right: Mapping[Combination, float]) -> dict[Combination, float]:
    return {name: left.get(name, 0.0) + right.get(name, 0.0) for name in left.keys() | right.keys()}


def _sums(left: Mapping[Pair, Tensor], right: Mapping[Pair, Tensor]) -> dict[Pair, Tensor]:
    found = {pair: total.clone() for pair, total in left.items()}
    for pair, total in right.items():
        found[pair] = found[pair] + total if pair in found else total.clone()
    return found
