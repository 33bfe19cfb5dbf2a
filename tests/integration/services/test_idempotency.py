"""Requests that come again."""

import threading
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select, text, update

from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.db.models import IdempotencyKey
from services.db.sessions import Database
from services.jobs.idempotency import Attempted, digest_of
from tests.integration.services.finished import finish
from tests.integration.services.helpers import Server
from tests.integration.services.test_jobs_api import count_of, keyed, made


def test_the_same_request_is_done_once(server: Server, database: Database) -> None:
    """Sent again with its key, a request gets the first answer to the letter, and makes no second job."""
    first = keyed(server, "k")
    again = keyed(server, "k", calibration={"sequences": 32})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.content == again.content
    assert first.headers["location"] == again.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert count_of(database) == 1


def test_a_key_belongs_to_one_request(server: Server) -> None:
    """Another body under the same key is refused."""
    keyed(server, "k")
    refused = keyed(server, "k", layers=3)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert refused.json()["field"] == "Idempotency-Key"


def test_a_key_belongs_to_one_api_key(server: Server, database: Database) -> None:
    """Two users may choose the same text."""
    with database.write() as session:
        other = Server(server.url, create_key(session, "other"))
    assert keyed(server, "k").json()["id"] != keyed(other, "k", layers=3).json()["id"]


def test_a_refused_request_uses_up_no_key(server: Server) -> None:
    """The corrected request may be sent under the same key."""
    assert keyed(server, "k", layers=0).status_code == 422
    assert keyed(server, "k", model="no-such-alias").status_code == 422
    assert keyed(server, "k").status_code == 202


def test_a_second_request_does_not_wait_for_the_first(server: Server, database: Database) -> None:
    """While the first request of a key is being answered, the second is told to come back."""
    with database.read() as session:
        owner = session.scalar(text("SELECT id FROM api_keys"))
    held = Attempted(owner, "k", digest_of("submit", {}))
    with database.write() as session:
        session.execute(select(func.pg_advisory_xact_lock(held.lock)))
        busy = keyed(server, "k")
    assert (busy.status_code, busy.json()["code"]) == (409, "idempotency_in_progress")
    assert keyed(server, "k").status_code == 202


def test_many_at_once_make_one_job(server: Server, database: Database) -> None:
    """Of requests sent at the same time one makes the job; the others hear of it or are told to wait."""
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(keyed(server, "k").status_code)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {202, 409}
    assert count_of(database) == 1


def test_a_key_is_forgotten_after_a_day(server: Server, database: Database) -> None:
    """An expired key serves for a new request."""
    first = keyed(server, "k").json()["id"]
    with database.write() as session:
        session.execute(update(IdempotencyKey).values(expires_at=func.now() - timedelta(seconds=1)))
    assert keyed(server, "k", layers=3).json()["id"] != first
    with database.read() as session:
        assert len(session.scalars(select(IdempotencyKey)).all()) == 1


@pytest.mark.parametrize("sent", ["", "a b", "x" * 256])
def test_a_key_is_visible_ascii(server: Server, sent: str) -> None:
    """Keys that a header cannot carry well are refused, and named."""
    refused = keyed(server, sent)
    assert (refused.status_code, refused.json()["field"]) == (422, "Idempotency-Key")


def test_a_clone_is_answered_again_without_its_original(
    server: Server, database: Database, store: ArtifactStore
) -> None:
    """A repeated request gets its answer, whatever became of the job that was cloned."""
    job_id = made(server)["id"]
    finish(database, store, UUID(job_id))
    path = f"/v1/jobs/{job_id}/retry"
    first = keyed(server, "k", path)
    assert server.request("DELETE", f"/v1/jobs/{job_id}").status_code == 204
    again = keyed(server, "k", path)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert again.content == first.content
