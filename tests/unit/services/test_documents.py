"""Documentation that cannot fall behind the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ghosted_cli.demo
import ghosted_cli.profiles
import ghosted_client.errors
import services.embedded.errors
import services.errors
import worker.errors
from ghosted_core.errors import GhostedError
from services.config import Settings

DOCS = Path(__file__).parents[3] / "docs"
MODULES = (
    ghosted_cli.demo,
    ghosted_cli.profiles,
    ghosted_client.errors,
    services.embedded.errors,
    services.errors,
    worker.errors,
)


def _kinds(base: type[GhostedError]) -> Iterator[type[GhostedError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


def _ours() -> list[type[GhostedError]]:
    """The classes of the core's and of `MODULES`: not those that only some test has loaded."""
    homes = {"ghosted_core.errors", *(module.__name__ for module in MODULES)}
    return [kind for kind in _kinds(GhostedError) if kind.__module__ in homes]


def _table(name: str) -> dict[str, str]:
    rows = re.findall(r"^\| `([^`]+)` \|(.+)\|$", (DOCS / name).read_text(), flags=re.MULTILINE)
    return dict(rows)


def test_every_code_is_documented() -> None:
    """docs/errors.md lists exactly the codes that the code can give."""
    assert set(_table("errors.md")) == {kind.code for kind in _ours()}


@pytest.mark.parametrize("kind", _ours(), ids=lambda kind: kind.__name__)
def test_the_document_says_what_the_class_says(kind: type[GhostedError]) -> None:
    """The advice in docs/errors.md is that of the class which defines the code."""
    if "code" in vars(kind) and "advice" in vars(kind):
        assert kind.advice in _table("errors.md")[kind.code]


def test_every_setting_is_documented() -> None:
    """docs/settings.md lists exactly the settings, each with its description."""
    table = _table("settings.md")
    fields = Settings.model_fields
    assert set(table) == {f"GHOSTED_{name.upper()}" for name in fields}
    for name, field in fields.items():
        assert (field.description or "?") in table[f"GHOSTED_{name.upper()}"]
