"""What is accumulated while calibrating: streaming sums whose size does not depend on the text."""

from ghosted_core.statistics.boundary import BoundaryStatistics
from ghosted_core.statistics.features import ENTERING, LEAVING, SHIFT, Combination, Feature, StatisticsRequest
from ghosted_core.statistics.similarity import LayerSimilarity
from ghosted_core.statistics.weighting import token_weights

__all__ = [
    "ENTERING",
    "LEAVING",
    "SHIFT",
    "BoundaryStatistics",
    "Combination",
    "Feature",
    "LayerSimilarity",
    "StatisticsRequest",
    "token_weights",
]
