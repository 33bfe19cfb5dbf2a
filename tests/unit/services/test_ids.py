from uuid import RFC_4122

from hypothesis import given, strategies as st

from services.db.ids import new_id, uuid7

MILLISECONDS = st.integers(0, 2**48 - 1)
NOISE = st.integers(0, 2**74 - 1)


@given(MILLISECONDS, NOISE)
def test_version_and_variant(milliseconds: int, noise: int) -> None:
    """Every id is a version 7 UUID that holds its time."""
    made = uuid7(milliseconds, noise)
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == milliseconds


@given(MILLISECONDS, MILLISECONDS, NOISE, NOISE)
def test_later_ids_are_greater(first: int, second: int, noise: int, other: int) -> None:
    """The order of times is the order of ids."""
    if first < second:
        assert uuid7(first, noise) < uuid7(second, other)


@given(MILLISECONDS, NOISE, NOISE)
def test_all_the_noise_is_kept(milliseconds: int, noise: int, other: int) -> None:
    """Different random bits give different ids."""
    assert (uuid7(milliseconds, noise) == uuid7(milliseconds, other)) == (noise == other)


def test_ids_differ() -> None:
    """No two of many ids are equal."""
    assert len({new_id() for _ in range(10_000)}) == 10_000
