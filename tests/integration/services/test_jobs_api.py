"""Submitting, finding, cloning and deleting, over HTTP."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.db.models import Job
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.schemas import LOG_CHARACTERS
from tests.integration.services.finished import finish
from tests.integration.services.helpers import Server, claim

BODY: dict[str, Any] = {"model": "owner/tiny", "layers": 2}
Post = Callable[..., Any]


def made(server: Server, **changes: Any) -> dict[str, Any]:
    response = server.request("POST", "/v1/jobs", json={**BODY, **changes})
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    return job


def listed(server: Server, **params: Any) -> list[str]:
    response = server.request("GET", "/v1/jobs", params=params)
    assert response.status_code == 200, response.text
    return [job["id"] for job in response.json()["items"]]


def keyed(server: Server, key: str, path: str = "/v1/jobs", **changes: Any) -> Any:
    body = {**BODY, **changes} if path == "/v1/jobs" else changes
    return server.request("POST", path, json=body, headers={"Idempotency-Key": key})


def count_of(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Job)) or 0


def test_jobs_are_found_by_model(server: Server) -> None:
    """The Hub repository, in any revision, or the alias."""
    hub = [made(server)["id"], made(server, model="owner/tiny@abc")["id"]]
    alias = made(server, model="smollm2-135m-instruct")["id"]
    assert listed(server, model="owner/tiny") == hub[::-1]
    assert listed(server, model="smollm2-135m-instruct") == [alias]
    assert listed(server, model="owner/other") == []


def test_jobs_are_found_by_label(server: Server) -> None:
    """A job is found by its label, by all of several, and not by part of a text."""
    both = made(server, labels={"team": "a", "run/id": "x=1"})["id"]
    one = made(server, labels={"team": "a"})["id"]
    made(server)
    assert listed(server, label="team=a") == [one, both]
    assert listed(server, label=["team=a", "run/id=x=1"]) == [both]
    assert listed(server, label="team=") == []


def test_jobs_are_found_by_time(server: Server) -> None:
    """From is included, before is not; any zone may be used, but one must be."""
    first, second = made(server), made(server)
    at = second["created_at"]
    assert listed(server, created_from=at) == [second["id"]]
    assert listed(server, created_before=at) == [first["id"]]
    elsewhere = datetime.fromisoformat(at).astimezone(UTC).isoformat().replace("+00:00", "-00:00")
    assert listed(server, created_from=elsewhere.replace("-00:00", "+00:00")) == [second["id"]]
    assert listed(server, created_from="0001-01-01T00:00:00Z") == [second["id"], first["id"]]
    assert listed(server, created_before="9999-12-31T23:59:59Z") == [second["id"], first["id"]]
    naive = server.request("GET", "/v1/jobs", params={"created_from": "2026-01-01T00:00:00"})
    assert (naive.status_code, naive.json()["field"]) == (422, "created_from")


def test_an_unknown_filter_is_refused(server: Server) -> None:
    """A misspelled filter does not silently list everything."""
    response = server.request("GET", "/v1/jobs", params={"status": "running"})
    assert (response.status_code, response.json()["field"]) == (422, "status")


def test_a_poller_is_told_that_nothing_changed(server: Server, database: Database) -> None:
    """304 while the job is the same; the new state and a new tag once it is not."""
    job_id = made(server)["id"]
    first = server.request("GET", f"/v1/jobs/{job_id}")
    tag = first.headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = server.request("GET", f"/v1/jobs/{job_id}", headers={"If-None-Match": sent})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    claim(database, UUID(job_id))
    changed = server.request("GET", f"/v1/jobs/{job_id}", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "running")


def test_the_rest_of_a_stage_is_estimated(server: Server, database: Database) -> None:
    """At the pace so far: a quarter done in 30 seconds leaves 90."""
    job_id = UUID(made(server)["id"])
    fence = claim(database, job_id).fence
    with database.write() as session:
        attempts.record_stage(session, fence, "calibrate", total=400)
    assert server.request("GET", f"/v1/jobs/{job_id}").json()["progress"]["eta_seconds"] is None
    with database.write() as session:
        attempts.record_progress(session, fence, "calibrate", 100)
        began = Job.last_seen_at - timedelta(seconds=30)
        session.execute(update(Job).values(stage_started_at=began))
    assert server.request("GET", f"/v1/jobs/{job_id}").json()["progress"]["eta_seconds"] == 90


def test_the_log_is_shown_from_its_end(server: Server, database: Database) -> None:
    """The last lines, oldest first, and whether there are older ones; other events are no lines."""
    job_id = UUID(made(server)["id"])
    fence = claim(database, job_id).fence
    with database.write() as session:
        for number in range(5):
            attempts.record_event(session, fence, "log", {"level": "info", "message": f"line {number}"})
    path = f"/v1/jobs/{job_id}/log"
    whole = server.request("GET", path).json()
    assert [line["message"] for line in whole["items"]] == [f"line {number}" for number in range(5)]
    assert not whole["truncated"]
    tail = server.request("GET", path, params={"lines": 2}).json()
    assert [line["message"] for line in tail["items"]] == ["line 3", "line 4"]
    assert tail["truncated"]


def test_a_log_has_a_longest_answer(server: Server, database: Database) -> None:
    """Long lines make it fewer."""
    job_id = UUID(made(server)["id"])
    fence = claim(database, job_id).fence
    with database.write() as session:
        for _ in range(3):
            attempts.record_event(
                session, fence, "log", {"level": "info", "message": "x" * (LOG_CHARACTERS // 2)}
            )
    tail = server.request("GET", f"/v1/jobs/{job_id}/log").json()
    assert (len(tail["items"]), tail["truncated"]) == (2, True)


def retried(server: Server, job_id: str, **edits: Any) -> Any:
    return server.request("POST", f"/v1/jobs/{job_id}/retry", json=edits)


def test_a_clone_is_as_its_original_but_for_the_edits(server: Server) -> None:
    """What is not edited stays, also inside calibration; the clone names its original."""
    original = made(
        server, labels={"team": "a"}, deadline_seconds=77, calibration={"sequences": 5, "seed": 9}
    )
    response = retried(server, original["id"], layers=3, calibration={"sequences": 6})
    clone = response.json()
    assert (response.status_code, clone["retry_of"]) == (202, original["id"])
    assert response.headers["location"].endswith(clone["id"])
    assert (clone["labels"], clone["deadline_seconds"]) == ({"team": "a"}, 77)
    assert clone["spec"]["layers"] == 3
    expected = {**original["spec"]["calibration"], "sequences": 6}
    assert clone["spec"]["calibration"] == expected


@pytest.mark.parametrize(
    ("edits", "field", "value"),
    [
        ({"evaluation": None}, "evaluation", None),
        ({"recovery": None}, "recovery", "ghosted"),
        ({"strategy": {"name": "explicit", "indices": [1]}}, "layers", None),
        ({"strategy": "reverse"}, "layers", 2),
        ({"model": "other/tiny"}, "model", "other/tiny"),
    ],
)
def test_edits_replace_or_reset(server: Server, edits: dict[str, Any], field: str, value: Any) -> None:
    """Null means none in evaluation and the default elsewhere; named layers need no count."""
    clone = retried(server, made(server)["id"], **edits).json()["spec"]
    found = clone[field]
    assert (found.get("name") or found.get("id") if isinstance(found, dict) else found) == value


@pytest.mark.parametrize(
    ("edits", "field"),
    [({"layers": None}, "body"), ({"x": 1}, "x"), ({"model": None}, "model"), ({"dtype": "int8"}, "dtype")],
)
def test_edits_that_leave_no_submission(server: Server, edits: dict[str, Any], field: str) -> None:
    """The whole is checked anew, and the wrong field is named."""
    refused = retried(server, made(server)["id"], **edits)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["field"] == field


def test_training_and_timing_are_edited_as_parts(server: Server) -> None:
    """What is not said of them stays; null, or false, leaves them out of the clone."""
    original = made(server, finetune={"epochs": 9, "trainable": "down_proj"}, evaluation={"latency": True})
    trained = retried(server, original["id"], finetune={"epochs": 2}).json()["spec"]
    assert trained["finetune"] == {**original["spec"]["finetune"], "epochs": 2}
    assert trained["evaluation"] == original["spec"]["evaluation"]
    left_out = retried(server, original["id"], finetune=False, evaluation={"latency": False}).json()["spec"]
    assert "finetune" not in left_out
    assert "latency" not in left_out["evaluation"]
    assert retried(server, made(server)["id"], finetune=True).json()["spec"]["finetune"]["epochs"] > 0


def test_a_clone_needs_no_body(server: Server) -> None:
    """Without edits it is the same again, once per Idempotency-Key."""
    original = made(server)
    path = f"/v1/jobs/{original['id']}/retry"
    clone = server.request("POST", path)
    assert clone.json()["spec_digest"] == original["spec_digest"]
    first, again = keyed(server, "k", path), keyed(server, "k", path)
    assert first.json()["id"] == again.json()["id"] != clone.json()["id"]


def test_a_deleted_job_leaves_nothing(server: Server, database: Database, store: ArtifactStore) -> None:
    """Row, events, artifact and objects go; a clone of it stays."""
    job_id = made(server)["id"]
    finish(database, store, UUID(job_id))
    clone = retried(server, job_id).json()["id"]
    assert list(store.list_objects(f"jobs/{job_id}/"))
    assert server.request("DELETE", f"/v1/jobs/{job_id}").status_code == 204
    assert not list(store.list_objects(f"jobs/{job_id}/"))
    for path in ("", "/events", "/artifact", "/log", "/metrics"):
        assert server.request("GET", f"/v1/jobs/{job_id}{path}").status_code == 404
    assert server.request("DELETE", f"/v1/jobs/{job_id}").status_code == 404
    assert server.request("GET", f"/v1/jobs/{clone}").json()["retry_of"] is None


def test_a_job_that_has_not_ended_stays(server: Server, database: Database) -> None:
    """Neither a queued nor a running job can be deleted."""
    job_id = made(server)["id"]
    for running in (False, True):
        if running:
            claim(database, UUID(job_id))
        refused = server.request("DELETE", f"/v1/jobs/{job_id}")
        assert (refused.status_code, refused.json()["code"]) == (409, "job_not_finished")
    assert server.request("GET", f"/v1/jobs/{job_id}").json()["state"] == "running"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/log"), ("GET", "/events/stream"), ("POST", "/retry"), ("DELETE", "")]
)
def test_foreign_jobs_do_not_exist(server: Server, database: Database, method: str, path: str) -> None:
    """Another key's job and an unknown one are answered alike, and nothing happens."""
    job_id = made(server)["id"]
    with database.write() as session:
        other = Server(server.url, create_key(session, "other"))
    for wanted in (job_id, str(uuid4())):
        refused = other.request(method, f"/v1/jobs/{wanted}{path}")
        assert (refused.status_code, refused.json()["code"]) == (404, "job_not_found")
    assert count_of(database) == 1
