from collections.abc import Iterable

import pytest
from hypothesis import given, strategies

from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import Boundary, PruningPlan

LAYERS = 12
removals = strategies.sets(strategies.integers(0, LAYERS - 1), min_size=1, max_size=LAYERS - 1)


@given(removals)
def test_removed_and_kept_partition_the_layers(removed: set[int]) -> None:
    """Every layer is either removed, as asked, or kept."""
    plan = PruningPlan.from_removed(removed, layer_count=LAYERS)
    assert set(plan.removed) == removed
    assert sorted(plan.removed + plan.kept) == list(range(LAYERS))


@given(removals)
def test_boundaries_are_maximal_runs(removed: set[int]) -> None:
    """No two boundaries touch, and the layers around each are kept."""
    plan = PruningPlan.from_removed(removed, layer_count=LAYERS)
    for boundary in plan.boundaries:
        assert boundary.start - 1 not in removed
        assert boundary.stop not in removed


@given(removals)
def test_position_is_the_new_index_of_the_layer_after_the_run(removed: set[int]) -> None:
    """The operator precedes the first kept layer after its run, or the end."""
    plan = PruningPlan.from_removed(removed, layer_count=LAYERS)
    for boundary in plan.boundaries:
        expected = plan.kept.index(boundary.stop) if boundary.stop < LAYERS else len(plan.kept)
        assert plan.position(boundary) == expected


def test_edges_are_ordinary() -> None:
    """Runs at layer 0 and at the end need no special case."""
    plan = PruningPlan.from_removed([0, 5], layer_count=6)
    assert plan.boundaries == (Boundary(0, 1), Boundary(5, 6))
    assert [plan.position(b) for b in plan.boundaries] == [0, 4]


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ([], "No layer"),
        ([3, 3], r"more than once: \[3\]"),
        ([6, -1], r"\[-1, 6\] do not exist"),
        (range(6), "leaves no model"),
    ],
)
def test_impossible_removals_are_refused(removed: Iterable[int], said: str) -> None:
    """None, repeated, unknown and all layers are typed errors that show the value."""
    with pytest.raises(InvalidSpecError, match=said):
        PruningPlan.from_removed(removed, layer_count=6)
