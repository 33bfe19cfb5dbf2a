from typing import Any

import pytest
from hypothesis import given, strategies as st

from services.dashboard.job_layers import UNKNOWN_SCORES, LayerStrip, layers_of, strip_of
from services.db.models import JobEvent


def summary(removed: list[int], layer_count: int, candidates: list[Any] | None = None) -> dict[str, Any]:
    scores = {"criterion": "shortgpt", "meaning": "change", "best": "lowest", "candidates": candidates or []}
    return {"plan": {"removed": removed, "scores": scores}, "source": {"layer_count": layer_count}}


def drawn(found: LayerStrip | None) -> LayerStrip:
    assert found is not None
    return found


@given(st.sets(st.integers(0, 39), min_size=1, max_size=39))
def test_the_strip_says_what_went_and_where_the_rest_is(removed: set[int]) -> None:
    """Removed cells are the removed layers; the others count on; runs open and close once each."""
    strip = drawn(strip_of(summary(sorted(removed), 40)))
    assert [cell.index for cell in strip.cells if cell.removed] == sorted(removed)
    assert [cell.place for cell in strip.cells if not cell.removed] == list(range(40 - len(removed)))
    assert [cell.index for cell in strip.cells if cell.opens] == [run.start for run in strip.runs]
    assert [cell.index + 1 for cell in strip.cells if cell.closes] == [run.stop for run in strip.runs]
    assert {index for run in strip.runs for index in range(run.start, run.stop)} == removed


def test_levels_run_from_the_lowest_to_the_highest_score() -> None:
    """Scores that differ in late digits only still look different; one without a score has no bar."""
    strip = drawn(strip_of(summary([1], 4, [[0, 0.9999], [1, 0.9997], [2, 0.9998]])))
    assert [cell.level for cell in strip.cells] == pytest.approx([1.0, 0.0, 0.5, None])
    assert strip.cells[1].tip == "Layer 1: removed, score 0.9997"
    assert strip.cells[3].tip == "Layer 3: kept as layer 2, not scored"
    assert strip.unscored == ""


@pytest.mark.parametrize(
    ("scores", "tip"),
    [
        ({"criterion": "angular", "candidates": [[1, 0.5]]}, "score 0.5 of the run that begins here"),
        ({"criterion": "angular", "candidates": [[0, 0.5]]}, "no run can begin here"),
        ({"criterion": "sleb", "candidates": [[0, 0.5]], "protected": [1]}, "protected"),
        ({"criterion": "sleb", "candidates": [[1, 0.5]]}, "score 0.5"),
    ],
)
def test_a_score_says_of_what_it_is_or_why_there_is_none(scores: dict[str, Any], tip: str) -> None:
    """That of a run is not the layer's own."""
    found = {"plan": {"removed": [1], "scores": scores}, "source": {"layer_count": 4}}
    assert drawn(strip_of(found)).cells[1].tip == f"Layer 1: removed, {tip}"


def test_criteria_that_did_not_decide_are_heard_too() -> None:
    """Each that has a score for the layer, by its name."""
    found = summary([1], 4, [[0, 0.5], [1, 0.25]])
    found["plan"]["scores"]["others"] = [
        {"criterion": "angular", "candidates": [[1, 0.125]]},
        {"criterion": "streamline", "candidates": [[0, 0.75], [1, 0.875]]},
    ]
    tips = [cell.tip for cell in drawn(strip_of(found)).cells]
    assert tips[0] == "Layer 0: kept as layer 0, score 0.5; by others: streamline 0.75"
    assert tips[1] == "Layer 1: removed, score 0.25; by others: angular 0.125, streamline 0.875"
    assert tips[2] == "Layer 2: kept as layer 1, not scored"


def test_where_nothing_was_scored_it_says_why() -> None:
    """By the rule's own words; and where not even those are there, that they are not."""
    found = summary([1], 4)
    assert drawn(strip_of(found)).unscored == "No scores, for none were needed: change."
    del found["plan"]["scores"]
    assert drawn(strip_of(found)).unscored == UNKNOWN_SCORES


def told(attempt: int, removed: list[int]) -> JobEvent:
    payload = {"removed": removed, "layer_count": 4, "scores": {"criterion": "sleb"}}
    return JobEvent(attempt=attempt, type="layers_chosen", payload=payload)


def test_what_an_attempt_tells_stands_in_for_its_result() -> None:
    """The latest word of that attempt alone, until there is an artifact, which knows better."""
    events = [told(1, [0]), told(2, [1]), told(2, [2])]
    assert [cell.removed for cell in drawn(layers_of({}, events, 2)).cells] == [False, False, True, False]
    assert layers_of({}, events, 3) is None
    assert drawn(layers_of(summary([3], 4), events, 2)).cells[3].removed


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"plan": None},
        summary([], 4),
        summary([9], 4),
        summary([1, 1], 4),
        {"plan": {"removed": "all"}, "source": {"layer_count": 4}},
        {"plan": {"removed": [1]}, "source": {"layer_count": 10**9}},
    ],
)
def test_a_summary_that_says_nothing_of_layers_has_no_strip(found: dict[str, Any]) -> None:
    """The page goes without, whatever stands in the row."""
    assert strip_of(found) is None
