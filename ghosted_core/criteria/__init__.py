"""Which layers go. A further criterion is one file here, one entry below and its form in `spec`."""

from collections.abc import Callable, Mapping
from typing import Any

from ghosted_core.criteria.angular import AngularCriterion
from ghosted_core.criteria.base import (
    Criterion,
    Evidence,
    Findings,
    LayerScores,
    LossCriterion,
    LossesWithout,
    OtherScores,
    plan_of,
)
from ghosted_core.criteria.explicit import ExplicitCriterion
from ghosted_core.criteria.magnitude import MagnitudeCriterion
from ghosted_core.criteria.perplexity import PerplexityCriterion
from ghosted_core.criteria.reverse import ReverseCriterion
from ghosted_core.criteria.shortgpt import ShortGptCriterion
from ghosted_core.criteria.shortgpt_channel import ShortGptChannelCriterion
from ghosted_core.criteria.sleb import SlebCriterion
from ghosted_core.criteria.streamline import StreamlineCriterion
from ghosted_core.criteria.streamline_channel import StreamlineChannelCriterion
from ghosted_core.criteria.taylor import TaylorCriterion
from ghosted_core.spec import STRATEGIES, Explicit, Strategy

# From a criterion's name to what makes it out of its form.
CRITERIA: Mapping[str, Callable[[Any], Criterion]] = {
    "streamline": StreamlineCriterion,
    "streamline_channel": StreamlineChannelCriterion,
    "shortgpt": ShortGptCriterion,
    "shortgpt_channel": ShortGptChannelCriterion,
    "angular": AngularCriterion,
    "taylor": TaylorCriterion,
    "magnitude": MagnitudeCriterion,
    "perplexity": PerplexityCriterion,
    "sleb": SlebCriterion,
    "reverse": ReverseCriterion,
    "explicit": ExplicitCriterion,
}


def criterion_for(strategy: Strategy) -> Criterion:
    """The criterion that `strategy` asks for."""
    return CRITERIA[strategy.name](strategy)


def usual_criteria() -> dict[str, Criterion]:
    """Each criterion with its usual settings, by name; without `explicit`, which has none."""
    forms: list[Strategy] = [form() for form in STRATEGIES if not issubclass(form, Explicit)]
    return {form.name: criterion_for(form) for form in forms}


__all__ = [
    "CRITERIA",
    "Criterion",
    "Evidence",
    "Findings",
    "LayerScores",
    "LossCriterion",
    "LossesWithout",
    "OtherScores",
    "criterion_for",
    "plan_of",
    "usual_criteria",
]
