"""What can be measured at a boundary while calibration text runs through the unpruned model."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor


class Feature(StrEnum):
    """An activation captured at a boundary [s, e): a matrix of tokens x width."""

    ENTERING = "entering"  # X_pre = x_s, the input of the first removed layer
    LEAVING = "leaving"  # X_post = x_e, the input of the first layer after the run


@dataclass(frozen=True)
class Combination:
    """A linear combination of features of equal width, under a name of its own."""

    name: str
    terms: tuple[tuple[Feature, float], ...]

    def of(self, features: Mapping[Feature, Float[Tensor, "tokens width"]]) -> Float[Tensor, "tokens width"]:
        """The combination's value for each token, in the features' dtype."""
        (first, scale), *rest = self.terms
        value = features[first] if scale == 1 else features[first] * scale
        for feature, factor in rest:
            value = value.add(features[feature], alpha=factor)
        return value


ENTERING = Combination("entering", ((Feature.ENTERING, 1.0),))
LEAVING = Combination("leaving", ((Feature.LEAVING, 1.0),))
SHIFT = Combination("shift", ((Feature.LEAVING, 1.0), (Feature.ENTERING, -1.0)))  # D = X_post - X_pre


@dataclass(frozen=True)
class StatisticsRequest:
    """Which sums a repair needs: A'B for each pair of `products`, ||A||_F^2 for each of `energies`."""

    products: tuple[tuple[Combination, Combination], ...]
    energies: tuple[Combination, ...] = ()

    @property
    def features(self) -> frozenset[Feature]:
        """The activations that have to be captured."""
        used = [*self.energies, *(side for pair in self.products for side in pair)]
        return frozenset(feature for combination in used for feature, _ in combination.terms)
