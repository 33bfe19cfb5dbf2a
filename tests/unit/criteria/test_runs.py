from typing import Any

import pytest

from ghosted_core.criteria import CRITERIA, Criterion, Findings, criterion_for
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import Reverse, Streamline
from tests.planted import planted

LAYERS = 6


def findings(values: dict[tuple[int, int], float]) -> Findings:
    return Findings(similarity=planted(LAYERS, values))


def made(name: str, **settings: Any) -> Criterion:
    form = {"streamline": Streamline, "reverse": Reverse}.get(name)
    return criterion_for(form(**settings)) if form else CRITERIA[name](None)


@pytest.mark.parametrize("name", ["streamline", "streamline_channel"])
def test_the_most_similar_run_goes(name: str) -> None:
    """argmax over the starts of the mean cosine."""
    scores = made(name).choose(2, LAYERS, findings({(3, 5): 0.9, (1, 3): 0.8}))
    assert scores.removed == (3, 4)
    assert scores.best == "highest"


def test_the_run_of_the_smallest_angle_goes() -> None:
    """argmin over the starts of the mean angle."""
    angles = {(start, start + 2): 0.5 - 0.1 * start for start in range(4)} | {(4, 6): 0.4}
    scores = made("angular").choose(2, LAYERS, findings(angles))
    assert scores.removed == (3, 4)
    assert scores.best == "lowest"


@pytest.mark.parametrize(
    ("name", "settings", "starts", "protected"),
    [
        ("streamline", {}, (1, 2, 3, 4), (0,)),
        ("streamline", {"keep_first": False}, (0, 1, 2, 3, 4), ()),
        ("streamline_channel", {}, (1, 2, 3), (0, 5)),
        ("angular", {}, (0, 1, 2, 3, 4), ()),
    ],
)
def test_candidates_and_protection(
    name: str, settings: dict[str, Any], starts: tuple[int, ...], protected: tuple[int, ...]
) -> None:
    """The starts that each paper admits; the layers that no run covers are told."""
    criterion = made(name, **settings)
    scores = criterion.choose(2, LAYERS, findings({}))
    assert tuple(start for start, _ in scores.candidates) == starts == criterion.candidates(2, LAYERS)
    assert scores.protected == protected


@pytest.mark.parametrize("name", ["streamline", "streamline_channel", "angular"])
def test_the_first_of_equals_wins_and_ties_are_told(name: str) -> None:
    """Ties are broken towards the input and reported."""
    starts = made(name).candidates(2, LAYERS)
    worse = 1.0 if name == "angular" else 0.0
    values = {(start, start + 2): worse for start in starts} | {(2, 4): 0.5, (3, 5): 0.5}
    scores = made(name).choose(2, LAYERS, findings(values))
    assert scores.removed == (2, 3)
    assert scores.ties == (3,)


@pytest.mark.parametrize(
    ("name", "count", "most"),
    [("streamline", 6, 5), ("streamline_channel", 5, 4), ("angular", 7, 6), ("reverse", 6, 5)],
)
def test_more_layers_than_may_go_are_refused(name: str, count: int, most: int) -> None:
    """Before any text is read, with the limit."""
    assert made(name).candidates(most, LAYERS)
    with pytest.raises(InvalidSpecError, match=f"at most {most} can go"):
        made(name).candidates(count, LAYERS)


def test_reverse_removes_the_deepest_and_keeps_the_last() -> None:
    """Gromov's simple rule; the last goes too if the user says so."""
    assert made("reverse").choose(2, LAYERS, Findings()).removed == (3, 4)
    assert made("reverse", keep_last=False).choose(2, LAYERS, Findings()).removed == (4, 5)
