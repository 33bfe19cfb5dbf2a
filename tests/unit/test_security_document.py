"""docs/security.md promises no test that is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text())))


def test_the_document_names_tests() -> None:
    """Every row of its tables does."""
    rows = re.findall(r"^\| (?!danger|---).*\|$", (ROOT / "docs/security.md").read_text(), flags=re.MULTILINE)
    assert rows
    assert all("`tests/" in row for row in rows)


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_a_named_test_exists(file: str, name: str) -> None:
    """The file has a test of that name."""
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), flags=re.MULTILINE)
