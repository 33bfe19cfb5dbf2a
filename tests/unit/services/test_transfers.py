"""How files are cut into parts."""

from hypothesis import given, settings, strategies as st

from services.artifacts.transfers import MOST_PARTS, cut

MIB = 2**20


@settings(deadline=None, max_examples=50)
@given(size=st.integers(0, 2**44), part=st.integers(5 * MIB, 5 * 2**30))
def test_parts_cover_the_file(size: int, part: int) -> None:
    """Parts are numbered from 1, touch each other, and cover the file; the store takes so many."""
    parts = cut(size, part)
    assert [one.number for one in parts] == list(range(1, len(parts) + 1))
    assert [one.start for one in parts] == [0, *(one.start + one.size_bytes for one in parts)][: len(parts)]
    assert sum(one.size_bytes for one in parts) == size
    assert len(parts) <= MOST_PARTS
    # All but the last are equal, and none is shorter than what was asked for.
    assert len({one.size_bytes for one in parts[:-1]}) <= 1
    assert all(one.size_bytes >= part for one in parts[:-1])
