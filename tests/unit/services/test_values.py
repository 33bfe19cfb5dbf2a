import json
import math
from typing import Any

from hypothesis import given, strategies as st

from services.jobs.values import figure, storable

TEXT = st.text(st.characters(codec=None), max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(VALUES)
def test_whatever_is_stored_is_strict_json(value: object) -> None:
    """The result is JSON without NaN, in UTF-8 without U+0000."""
    text = json.dumps(storable(value), allow_nan=False, ensure_ascii=False)
    assert "\0" not in text.encode("utf-8").decode("utf-8")
    assert "\\u0000" not in text


@given(VALUES)
def test_storing_twice_changes_nothing_more(value: object) -> None:
    """What can be stored stays as it is."""
    assert storable(storable(value)) == storable(value)


@given(st.floats())
def test_a_figure_is_a_value_or_a_reason(value: float) -> None:
    """Exactly one of the two is there, and the value is the measured one."""
    found = figure(value)
    assert (found.value is None) != (found.reason is None)
    assert found.value == value if math.isfinite(value) else found.value is None
