from dataclasses import fields
from typing import Any

import pytest
from jinja2 import meta, nodes

from services.dashboard.compare_page import ComparePage
from services.dashboard.job_page import JobPage
from services.dashboard.rendering import environment
from services.dashboard.system_page import SystemPage

# What `rendering.common` adds, and what the environment knows everywhere.
COMMON = {"viewer", "csrf_token", "nav", "twin", "now", "stream", "asset", "style_marks"}
PAGES = [("job.html", JobPage), ("compare.html", ComparePage), ("system.html", SystemPage)]


def parsed(name: str) -> nodes.Template:
    made = environment()
    assert made.loader is not None
    source, _, _ = made.loader.get_source(made, name)
    return made.parse(source)


def family(name: str) -> set[str]:
    """The template, and those that it includes and imports."""
    found = {name}
    for other in meta.find_referenced_templates(parsed(name)):
        assert other is not None, "templates are named by constants"
        found |= family(other)
    return found


def brought(name: str) -> set[str]:
    """Names that the family imports from others for all of it."""
    imports = [one for part in family(name) for one in parsed(part).find_all(nodes.FromImport)]
    aliases = [one.target for part in family(name) for one in parsed(part).find_all(nodes.Import)]
    return {entry if isinstance(entry, str) else entry[1] for one in imports for entry in one.names} | set(
        aliases
    )


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_a_page_shows_all_of_its_data_and_nothing_else(name: str, page: type[Any]) -> None:
    """Every field of the dataclass is used by its templates, and every name they use is one of them."""
    used = {one for part in family(name) for one in meta.find_undeclared_variables(parsed(part))}
    data = {field.name for field in fields(page)}
    assert used - COMMON - brought(name) - data == set()
    assert data - used == set()


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_no_text_escapes_the_escaping(name: str, page: type[Any]) -> None:
    """No template marks a text as safe or switches the escaping off."""
    for part in family(name):
        tree = parsed(part)
        assert all(one.name not in {"safe", "forceescape"} for one in tree.find_all(nodes.Filter)), part
        assert not list(tree.find_all((nodes.ScopedEvalContextModifier, nodes.MarkSafe))), part
