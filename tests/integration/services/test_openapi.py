"""The description of the API: complete, committed, true."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.app import create_app
from services.config import Settings
from services.examples import EDITS, SUBMISSIONS
from services.openapi import rendered
from tests.integration.services.helpers import Server

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="session")
def described(settings: Settings) -> dict[str, Any]:
    """The description that the code gives."""
    found: dict[str, Any] = json.loads(rendered(create_app(settings)))
    return found


def operations(described: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, one) for path, methods in described["paths"].items() for one in methods.values()]


def test_the_committed_description_is_that_of_the_code(settings: Settings) -> None:
    """`make openapi` was run after the last change."""
    assert DOCUMENT.read_text(encoding="utf-8") == rendered(create_app(settings)), "run `make openapi`"


def test_every_operation_is_told(described: dict[str, Any]) -> None:
    """Names are unique and short; each operation, parameter and answer is described."""
    names = [one["operationId"] for _, one in operations(described)]
    assert len(set(names)) == len(names)
    for path, one in operations(described):
        assert one["operationId"].isidentifier(), path
        assert one["description"], path
        assert one["tags"], path
        for parameter in one.get("parameters", ()):
            assert parameter.get("description") or parameter["in"] == "path", (path, parameter["name"])
        for response in one["responses"].values():
            assert response["description"] not in {"", "Successful Response"}, path


def test_every_refusal_is_a_problem(described: dict[str, Any]) -> None:
    """Each operation says which, with an example that the problem's schema allows."""
    for path, one in operations(described):
        for status, response in one["responses"].items():
            if int(status) < 400 or path == "/readyz":
                continue
            assert set(response["content"]) == {PROBLEM}, (path, status)
            for code, example in response["content"][PROBLEM].get("examples", {}).items():
                assert (example["value"]["code"], example["value"]["status"]) == (code, int(status))


def test_references_lead_somewhere(described: dict[str, Any]) -> None:
    """Every $ref has its target, and nothing is left that only FastAPI uses."""
    words = json.dumps(described)
    assert "HTTPValidationError" not in words
    assert "LocalModel" not in words
    for reference in {part.split('"')[0] for part in words.split('"#/components/')[1:]}:
        kind, name = reference.split("/")
        assert name in described["components"][kind]


@pytest.mark.parametrize("name", sorted(SUBMISSIONS))
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:validate"])
def test_examples_are_accepted(server: Server, monkeypatch: pytest.MonkeyPatch, path: str, name: str) -> None:
    """Who copies an example from the description gets a job, or its validation."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    response = server.request("POST", path, json=SUBMISSIONS[name]["value"])
    assert response.status_code in {200, 202}, response.text


@pytest.mark.parametrize("name", sorted(EDITS))
def test_edits_of_the_description_are_accepted(server: Server, name: str) -> None:
    """The same for clones."""
    job_id = server.request("POST", "/v1/jobs", json=SUBMISSIONS["smallest"]["value"]).json()["id"]
    assert server.request("POST", f"/v1/jobs/{job_id}/retry", json=EDITS[name]["value"]).status_code == 202
