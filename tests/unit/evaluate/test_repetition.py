import math

import pytest
from hypothesis import given, strategies as st

from ghosted_core.evaluate.repetition import distinct, longest_repeat, repetition

TOKENS = st.lists(st.integers(0, 2), max_size=14)


@given(TOKENS)
def test_the_longest_repeat_is_that_of_trying_all(tokens: list[int]) -> None:
    """The longest length of which two places have the same tokens."""
    lengths = [0]
    for length in range(1, len(tokens)):
        parts = [tuple(tokens[start : start + length]) for start in range(len(tokens) - length + 1)]
        if len(set(parts)) < len(parts):
            lengths.append(length)
    assert longest_repeat(tokens) == max(lengths)


@given(TOKENS, st.integers(1, 3))
def test_distinct_is_a_share_of_grams(tokens: list[int], n: int) -> None:
    """1 exactly where no n-gram occurs twice; undefined where there is none."""
    share = distinct(tokens, n)
    if len(tokens) < n:
        assert math.isnan(share)
    else:
        assert 0 < share <= 1
        assert (share == 1) == (longest_repeat(tokens) < n)


def test_a_stuck_model_shows() -> None:
    """One token again and again: hardly anything distinct, and the repeat is almost all of it."""
    found = repetition([[5] * 20, list(range(20))])
    assert found["distinct_1"] == pytest.approx((1 / 20 + 1) / 2)
    assert found["longest_repeat"] == pytest.approx((19 + 0) / 2)


def test_what_is_undefined_is_left_out() -> None:
    """A model that stops at once has no n-grams; one token is no bigram."""
    assert repetition([[]]) == {}
    assert set(repetition([[1]])) == {"distinct_1", "longest_repeat"}
