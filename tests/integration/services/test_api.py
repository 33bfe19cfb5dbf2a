import json
import subprocess
import sys
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text

from ghosted_core.spec import RECOVERIES, STRATEGIES, JobSpec
from services.app import create_app
from services.auth.repository import create_key, revoke_key
from services.config import Settings
from services.db.models import Job, OutboxMessage
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.failures import Failure
from tests.integration.services.helpers import Server, claim

BODY: dict[str, Any] = {"model": "owner/tiny", "layers": 2}
# Of no job.
NOBODYS = UUID(int=7)


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The response's problem document, once it is seen to be one."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    document: dict[str, Any] = response.json()
    assert (document["status"], document["code"]) == (status, code)
    assert all(document[name] for name in ("type", "title", "detail", "advice"))
    return document


def test_a_submission_is_accepted(server: Server, database: Database) -> None:
    """The answer is 202 with the job's address, and the job and its wake-up are committed."""
    response = server.request("POST", "/v1/jobs", json={**BODY, "labels": {"team": "a"}})
    job = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert int(response.headers["retry-after"]) > 0
    assert (job["state"], job["labels"], job["queue_position"]) == ("queued", {"team": "a"}, 0)
    assert JobSpec.model_validate(job["spec"]) == JobSpec.model_validate(BODY)
    assert job["created_at"].endswith("Z")
    with database.read() as session:
        assert str(session.scalars(select(OutboxMessage.job_id)).one()) == job["id"]


def test_a_failed_commit_is_not_answered_with_success(server: Server, database: Database) -> None:
    """The transaction ends before the response begins: when it fails, the user hears so."""
    refuse = "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE 'no'; END $$ LANGUAGE plpgsql"
    at_commit = (
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with database.write() as session:
        session.execute(text(refuse))
        session.execute(text(at_commit))
    try:
        response = server.request("POST", "/v1/jobs", json=BODY)
    finally:
        with database.write() as session:
            session.execute(text("DROP TRIGGER refuse ON jobs"))
            session.execute(text("DROP FUNCTION refuse"))
    problem(response, 500, "internal")
    with database.read() as session:
        assert session.scalars(select(Job)).all() == []


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"layers": 2}, "invalid_request", "model"),
        ({**BODY, "extra": 1}, "invalid_request", "extra"),
        ({**BODY, "state": "succeeded"}, "invalid_request", "state"),
        ({**BODY, "layers": 0}, "invalid_request", "layers"),
        ({"model": "owner/tiny"}, "invalid_request", "body"),
        ({**BODY, "labels": {"a b": "c"}}, "invalid_request", "labels.a b"),
        ({**BODY, "labels": {"a": "\0"}}, "invalid_request", "labels.a"),
        ({**BODY, "evaluation": {"prompts": ["\0"]}}, "invalid_request", None),
        ({**BODY, "evaluation": {"prompts": ["\ud800"]}}, "invalid_request", "evaluation.prompts.0"),
        ({**BODY, "deadline_seconds": 10**9}, "invalid_request", "deadline_seconds"),
        ({**BODY, "model": "../etc"}, "invalid_request", "model"),
        ({**BODY, "model": {"kind": "hub", "id": "../etc"}}, "invalid_request", "model.id"),
        ({**BODY, "strategy": {"name": "taylor", "sequences": 0}}, "invalid_request", "strategy.sequences"),
        ({**BODY, "model": {"kind": "local", "path": "/etc"}}, "local_path_refused", "model"),
        (
            {**BODY, "calibration": {"dataset": {"kind": "local", "path": "/etc/passwd"}}},
            "local_path_refused",
            "calibration.dataset",
        ),
        (
            {**BODY, "evaluation": {"dataset": {"kind": "local", "path": "x.txt"}}},
            "local_path_refused",
            "evaluation.dataset",
        ),
        (
            {**BODY, "evaluation": {"corpora": [{"name": "x", "dataset": {"kind": "local", "path": "x"}}]}},
            "local_path_refused",
            "evaluation.corpora.0.dataset",
        ),
        (
            {**BODY, "finetune": {"dataset": {"kind": "local", "path": "x.txt"}}},
            "local_path_refused",
            "finetune.dataset",
        ),
        ({**BODY, "model": "no-such-alias"}, "unknown_alias", "model"),
        ({**BODY, "calibration": {"dataset": "no-such"}}, "unknown_alias", "calibration.dataset"),
    ],
)
def test_bad_submissions_end_here(server: Server, body: dict[str, Any], code: str, field: str | None) -> None:
    """A wrong body is answered 422 with the field's name, and makes no job."""
    found = problem(server.submit(body), 422, code)
    assert found.get("field") == field
    assert server.request("GET", "/v1/jobs").json()["items"] == []


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "bad_request"),
        (b"\xff\xfe", "application/json", 400, "bad_request"),
        (b"[" * 200_000, "application/json", 400, "bad_request"),
        (b'{"layers": ' + b"9" * 200_000 + b"}", "application/json", 400, "bad_request"),
        (b'{"model": "owner/tiny", "layers": NaN}', "application/json", 422, "invalid_request"),
        (b"[]", "application/json", 422, "invalid_request"),
        (b"model=a", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b" " * 300_000, "application/json", 413, "body_too_large"),
    ],
)
def test_bodies_that_are_no_submission(
    server: Server, content: bytes, kind: str, status: int, code: str
) -> None:
    """Broken, foreign and oversized bodies are told apart."""
    response = server.request("POST", "/v1/jobs", content=content, headers={"Content-Type": kind})
    problem(response, status, code)


def test_a_body_of_unstated_length_is_counted(server: Server) -> None:
    """A chunked body meets the same limit."""
    pieces = iter([b" " * 100_000] * 4)
    response = server.request(
        "POST", "/v1/jobs", content=pieces, headers={"Content-Type": "application/json"}
    )
    problem(response, 413, "body_too_large")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", f"/v1/jobs/{NOBODYS}"),
        ("GET", f"/v1/jobs/{NOBODYS}/events"),
        ("GET", f"/v1/jobs/{NOBODYS}/metrics"),
        ("GET", f"/v1/jobs/{NOBODYS}/artifact"),
        ("POST", f"/v1/jobs/{NOBODYS}/cancel"),
    ],
)
@pytest.mark.parametrize("wrong", ["none", "malformed", "unknown", "revoked", "scheme"])
def test_every_path_about_jobs_needs_a_key(
    server: Server, database: Database, method: str, path: str, wrong: str
) -> None:
    """Without a key in use there is 401 and nothing else."""
    with database.write() as session:
        revoked = create_key(session, "revoked")
        revoke_key(session, revoked.split("_")[1])
    said = {
        "none": "",
        "malformed": "Bearer ghosted_x",
        "unknown": f"Bearer {server.key[:-4]}AAAA",
        "revoked": f"Bearer {revoked}",
        "scheme": f"Basic {server.key}",
    }[wrong]
    response = server.request(
        method, path, json=BODY if method == "POST" else None, headers={"Authorization": said}
    )
    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/events"), ("GET", "/metrics"), ("GET", "/artifact"), ("POST", "/cancel")],
)
def test_foreign_jobs_do_not_exist(server: Server, database: Database, method: str, path: str) -> None:
    """Another key's job and an unknown one are answered alike."""
    job_id = server.request("POST", "/v1/jobs", json=BODY).json()["id"]
    with database.write() as session:
        other = Server(server.url, create_key(session, "other"))
    foreign = problem(other.request(method, f"/v1/jobs/{job_id}{path}"), 404, "job_not_found")
    unknown_id = str(uuid4())
    unknown = problem(other.request(method, f"/v1/jobs/{unknown_id}{path}"), 404, "job_not_found")
    assert json.dumps(foreign).replace(job_id, "") == json.dumps(unknown).replace(unknown_id, "")
    assert server.request("GET", f"/v1/jobs/{job_id}").json()["state"] == "queued"


def test_unknown_paths_and_methods_are_problems(server: Server) -> None:
    """404 and 405 have the same form as every other error."""
    problem(server.request("GET", "/nothing"), 404, "route_not_found")
    response = server.request("DELETE", "/v1/jobs")
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET, POST"


def test_a_failed_job_says_why(server: Server, database: Database) -> None:
    """The failure shows code, message, advice, stage, attempt and whether to try again."""
    job_id = server.request("POST", "/v1/jobs", json=BODY).json()["id"]
    fence = claim(database, job_id).fence
    with database.write() as session:
        attempts.finish_failed(session, fence, Failure("unsafe_model", "pickles", "Use others.", "load"))
    job = server.request("GET", f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["done"]) == ("failed", True)
    assert job["failure"] == {
        "code": "unsafe_model",
        "message": "pickles",
        "advice": "Use others.",
        "stage": "load",
        "attempt": 1,
        "retryable": False,
    }


def test_an_infinite_metric_does_not_break_the_answer(server: Server, database: Database) -> None:
    """Perplexity can be infinite; the answer is valid JSON with null and a reason."""
    job_id = server.request("POST", "/v1/jobs", json=BODY).json()["id"]
    fence = claim(database, job_id).fence
    with database.write() as session:
        attempts.record_metric(session, fence, "perplexity", float("inf"), {"stderr": float("nan")})
    for path in ("metrics", "events"):
        answer = server.request("GET", f"/v1/jobs/{job_id}/{path}").text
        json.loads(answer, parse_constant=pytest.fail)
    (metric,) = server.request("GET", f"/v1/jobs/{job_id}/metrics").json()["items"]
    assert (metric["value"], metric["reason"], metric["detail"]) == (None, "infinite", {"stderr": None})


def test_cancel_is_answered_once_it_is_too_late(server: Server) -> None:
    """A queued job is cancelled; a second request is a conflict, and the job stays as it is."""
    job_id = server.request("POST", "/v1/jobs", json=BODY).json()["id"]
    response = server.request("POST", f"/v1/jobs/{job_id}/cancel")
    assert (response.status_code, response.json()["state"]) == (202, "cancelled")
    problem(server.request("POST", f"/v1/jobs/{job_id}/cancel"), 409, "job_finished")


def test_methods_describe_themselves(server: Server) -> None:
    """Each strategy and recovery is listed with title, paper, description and its JSON schema."""
    for path, kinds in (("strategies", STRATEGIES), ("recoveries", RECOVERIES)):
        items = server.request("GET", f"/v1/{path}").json()["items"]
        told = [(item["title"], item["paper"]) for item in items]
        assert told == [(kind.title, kind.paper) for kind in kinds]
        assert [item["json_schema"] for item in items] == [kind.model_json_schema() for kind in kinds]
        assert all(item["description"] for item in items)


def test_health_needs_no_key(server: Server) -> None:
    """A probe has no key, and all parts answer."""
    assert server.request("GET", "/healthz", headers={"Authorization": ""}).json() == {"status": "ok"}
    ready = server.request("GET", "/readyz", headers={"Authorization": ""}).json()
    assert ready == {"ready": True, "parts": {"database": "ok", "broker": "ok", "object_store": "ok"}}


def test_the_description_is_complete(settings: Settings) -> None:
    """Every operation declares its problems, and every reference has its target."""
    described = create_app(settings).openapi()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert "500" in operation["responses"]
            assert not path.startswith("/v1/jobs") or "401" in operation["responses"]
            for status, response in operation["responses"].items():
                if int(status) >= 400 and path != "/readyz":
                    assert "application/problem+json" in response["content"]
    words = json.dumps(described)
    assert "HTTPValidationError" not in words
    for name in {part.split('"')[0] for part in words.split("#/components/schemas/")[1:]}:
        assert name in described["components"]["schemas"]


def test_the_description_is_served(server: Server) -> None:
    """Anyone can fetch it."""
    assert "/v1/jobs" in server.request("GET", "/openapi.json").json()["paths"]


def test_the_application_needs_no_torch() -> None:
    """The API's image holds neither torch nor transformers."""
    code = "import sys, services.app; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
