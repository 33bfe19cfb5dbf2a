"""Everyone can read and use the pages."""

import pytest

from tests.dashboard.axe import violations
from tests.dashboard.conftest import Opener, Served
from tests.dashboard.scenes import MODEL, furnish


@pytest.mark.parametrize(
    "path",
    [
        "/jobs",
        "/jobs?state=failed&label=nonsense",
        "/submit",
        f"/submit?model={MODEL}&layers=29&strategy=ghost",
        f"/submit?model={MODEL}&layers=16&strategy=reverse",
        "/nowhere-in-jobs",
    ],
)
def test_axe_finds_nothing(opener: Opener, served: Served, path: str) -> None:
    """Light and dark, on a phone and on a desk, axe finds no violation, and nothing is too wide."""
    furnish(served.database, served.owner_id)
    assert violations(opener, path.replace("/nowhere-in-jobs", "/jobs/nowhere")) == []


def test_axe_finds_nothing_where_there_is_nothing(opener: Opener, served: Served) -> None:
    """The empty list says what to do first, and is readable too."""
    assert violations(opener, "/jobs") == []


def test_axe_finds_nothing_before_the_login(opener: Opener, served: Served) -> None:
    """The login form is readable too."""
    assert violations(opener, "/login", login=False) == []
