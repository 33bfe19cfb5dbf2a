"""What can be measured at a boundary while calibration text runs through the unpruned model."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from jaxtyping import Float, Float64
from torch import Tensor

from ghosted_core.hadamard import rotation


class Feature(StrEnum):
    """An activation captured at a boundary [s, e): tokens x width, windows of them in front."""

    ENTERING = "entering"  # X_pre = x_s, the input of the first removed layer
    LEAVING = "leaving"  # X_post = x_e, the input of the first layer after the run
    MLP = "mlp"  # m, what the MLP of layer s - 1 adds to the stream


@dataclass(frozen=True)
class Combination:
    """A linear combination of features of equal width, under a name of its own.

    `rotated`: multiplied by the orthonormal `hadamard.rotation` of the width afterwards.
    """

    name: str
    terms: tuple[tuple[Feature, float], ...]
    rotated: bool = False

    def of(
        self, features: Mapping[Feature, Float[Tensor, "*windows tokens width"]]
    ) -> Float[Tensor, "*windows tokens width"]:
        """The combination's value for each token, in the features' dtype."""
        (first, scale), *rest = self.terms
        value = features[first] if scale == 1 else features[first] * scale
        for feature, factor in rest:
            value = value.add(features[feature], alpha=factor)
        return value @ rotation(value.shape[-1]).matrix.to(value) if self.rotated else value


ENTERING = Combination("entering", ((Feature.ENTERING, 1.0),))
LEAVING = Combination("leaving", ((Feature.LEAVING, 1.0),))
SHIFT = Combination("shift", ((Feature.LEAVING, 1.0), (Feature.ENTERING, -1.0)))  # D = X_post - X_pre
MLP = Combination("mlp", ((Feature.MLP, 1.0),))
# X_post - y with y = X_pre - m, the stream beside the MLP.
MLP_TARGET = Combination("mlp_target", ((Feature.LEAVING, 1.0), (Feature.ENTERING, -1.0), (Feature.MLP, 1.0)))
ROTATED_ENTERING = Combination("rotated_entering", ENTERING.terms, rotated=True)
ROTATED_LEAVING = Combination("rotated_leaving", LEAVING.terms, rotated=True)
ROTATED_SHIFT = Combination("rotated_shift", SHIFT.terms, rotated=True)

Pair = tuple[Combination, Combination]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class StatisticsRequest:
    """Which sums a repair needs.

    A'B for each pair of `products`, its diagonal alone for each of `diagonals`, ||A||_F^2 for each of
    `energies`, and for each pair of `ratios` the sum over windows of mean_t |A| / mean_t |B|, a channel
    at a time. `precision` is that in which a batch's products are multiplied; totals are float64.
    """

    products: tuple[Pair, ...] = ()
    energies: tuple[Combination, ...] = ()
    diagonals: tuple[Pair, ...] = ()
    ratios: tuple[Pair, ...] = ()
    precision: Precision = "float64"

    @property
    def combinations(self) -> frozenset[Combination]:
        """All that the sums are over."""
        pairs = (*self.products, *self.diagonals, *self.ratios)
        return frozenset([*self.energies, *(side for pair in pairs for side in pair)])

    @property
    def features(self) -> frozenset[Feature]:
        """The activations that have to be captured."""
        return frozenset(feature for combination in self.combinations for feature, _ in combination.terms)

    def __or__(self, other: "StatisticsRequest") -> "StatisticsRequest":
        """Everything that either asks for, as exact as either asks: one pass then serves several repairs."""
        asked: tuple[Precision, ...] = (self.precision, other.precision)
        return StatisticsRequest(
            products=tuple(dict.fromkeys((*self.products, *other.products))),
            energies=tuple(dict.fromkeys((*self.energies, *other.energies))),
            diagonals=tuple(dict.fromkeys((*self.diagonals, *other.diagonals))),
            ratios=tuple(dict.fromkeys((*self.ratios, *other.ratios))),
            precision="float64" if "float64" in asked else "float32",
        )


def mean_ratios(
    numerator: Float64[Tensor, "*windows tokens width"],
    denominator: Float64[Tensor, "*windows tokens width"],
    weights: Float64[Tensor, "*windows tokens"] | None,
) -> Float64[Tensor, "*windows width"]:
    """mean_t |a| / mean_t |b| of each window and channel; 1 where |b| is 0, for nothing scales to it."""
    column = 1.0 if weights is None else weights[..., None]
    above, below = ((value.abs() * column).sum(dim=-2) for value in (numerator, denominator))
    return (above / below).where(below > 0, 1.0)
