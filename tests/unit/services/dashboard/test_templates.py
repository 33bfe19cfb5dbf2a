from dataclasses import fields
from typing import Any

import pytest
from jinja2 import meta, nodes

from services.dashboard.actions import DeletePage
from services.dashboard.compare_page import ComparePage
from services.dashboard.job_page import JobPage
from services.dashboard.jobs_page import JobsPage
from services.dashboard.login_page import LoginPage
from services.dashboard.rendering import ErrorPage, environment
from services.dashboard.submit_page import SubmitPage
from services.dashboard.system_page import SystemPage

# What `rendering.common` adds, and what the environment knows everywhere.
COMMON = {"viewer", "csrf_token", "nav", "twin", "now", "stream", "asset", "style_marks"}
PAGES = [
    ("jobs.html", JobsPage),
    ("job.html", JobPage),
    ("submit.html", SubmitPage),
    ("compare.html", ComparePage),
    ("system.html", SystemPage),
    ("login.html", LoginPage),
    ("delete.html", DeletePage),
    ("error.html", ErrorPage),
]


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
    """Names that the family makes or imports for itself."""
    trees = [parsed(part) for part in family(name)]
    imports = [one for tree in trees for one in tree.find_all(nodes.FromImport)]
    found = {entry if isinstance(entry, str) else entry[1] for one in imports for entry in one.names}
    found |= {one.target for tree in trees for one in tree.find_all(nodes.Import)}
    found |= {one.name for tree in trees for one in tree.find_all(nodes.Macro)}
    made = [one.target for tree in trees for one in tree.find_all(nodes.Assign)]
    return found | {one.name for one in made if isinstance(one, nodes.Name)}


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
