"""Which layers go. A further criterion is one file here, one entry below and its form in `spec`."""

from collections.abc import Mapping

from ghosted_core.criteria.base import Criterion, Evidence, LayerScores, plan_of
from ghosted_core.criteria.explicit import ExplicitCriterion
from ghosted_core.criteria.streamline import StreamlineCriterion

CRITERIA: Mapping[str, Criterion] = {
    "streamline": StreamlineCriterion(),
    "explicit": ExplicitCriterion(),
}

__all__ = ["CRITERIA", "Criterion", "Evidence", "LayerScores", "plan_of"]
