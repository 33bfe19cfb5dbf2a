"""What is accumulated while calibrating: streaming sums whose size does not depend on the text."""

from ghosted_core.statistics.boundary import BoundaryStatistics
from ghosted_core.statistics.features import (
    ENTERING,
    LEAVING,
    MLP,
    MLP_TARGET,
    ROTATED_ENTERING,
    ROTATED_LEAVING,
    ROTATED_SHIFT,
    SHIFT,
    Combination,
    Feature,
    Pair,
    Precision,
    StatisticsRequest,
)
from ghosted_core.statistics.similarity import LayerSimilarity
from ghosted_core.statistics.weighting import token_weights

__all__ = [
    "ENTERING",
    "LEAVING",
    "MLP",
    "MLP_TARGET",
    "ROTATED_ENTERING",
    "ROTATED_LEAVING",
    "ROTATED_SHIFT",
    "SHIFT",
    "BoundaryStatistics",
    "Combination",
    "Feature",
    "LayerSimilarity",
    "Pair",
    "Precision",
    "StatisticsRequest",
    "token_weights",
]
