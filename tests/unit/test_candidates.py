from collections.abc import Callable

import pytest
from pydantic import TypeAdapter

from ghosted_core.candidates import candidates
from ghosted_core.criteria import Evidence, Findings, criterion_for
from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import AnyStrategy, Strategy

ADAPTER: TypeAdapter[AnyStrategy] = TypeAdapter(Strategy)
FORMS = [
    "streamline",
    {"name": "streamline", "keep_first": False},
    "streamline_channel",
    "shortgpt",
    "shortgpt_channel",
    "angular",
    "taylor",
    {"name": "taylor", "protect": False},
    "magnitude",
    {"name": "magnitude", "protect": False},
    "perplexity",
    {"name": "perplexity", "protect": True},
    "sleb",
    "reverse",
    {"name": "reverse", "keep_last": False},
    {"name": "explicit", "indices": [0, 2, 3]},
    {"name": "explicit", "indices": [9]},
]


def told(ask: Callable[[], tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return ask()
    except InvalidSpecError:
        return None


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_rule_is_that_of_the_criterion(form: object) -> None:
    """For every number of layers the same choices, or the same refusal."""
    strategy = ADAPTER.validate_python(form)
    criterion = criterion_for(strategy)
    for layer_count in range(2, 12):
        for count in range(1, layer_count):
            expected = told(lambda c=count, n=layer_count: criterion.candidates(c, n))
            found = told(lambda c=count, n=layer_count: candidates(strategy, c, n).choices)
            assert found == expected, (count, layer_count)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_needs_no_look_is_known(form: object) -> None:
    """The removed layers are told exactly where the criterion looks at nothing, and are its own."""
    strategy = ADAPTER.validate_python(form)
    criterion = criterion_for(strategy)
    count = 1
    found = candidates(strategy, count, 12)
    if criterion.evidence is Evidence.NOTHING:
        assert found.removed == criterion.choose(count, 12, Findings()).removed
    else:
        assert found.removed is None


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_largest_case_is_one_that_can_be(form: object) -> None:
    """It removes as many layers as asked for, each a possible choice."""
    strategy = ADAPTER.validate_python(form)
    count = len(getattr(strategy, "indices", range(3)))
    largest = candidates(strategy, count, 12).largest(count)
    assert len(largest) == count
    PruningPlan.from_removed(largest, layer_count=12)
