"""A Hub token is nowhere to be read, and gone when its job has ended."""

import json
import logging
from collections.abc import Callable
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from services.config import Settings
from services.db.models import Base, Job
from services.db.sessions import Database
from services.jobs import attempts, repository
from services.jobs.failures import Failure, RetryPolicy
from services.jobs.sweeping import end_expired_attempts
from services.sealing import SecretBox
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import ARTIFACT, EVERYONE, Server, claim, read, submit
from tests.integration.services.test_api import BODY, problem

TOKEN = "hf_ThisIsTheTokenOfSomebody"  # noqa: S105 - no one's
SECRET = "0123456789abcdef" * 2
HEADERS = {"X-Hub-Token": TOKEN}
BOX = SecretBox.of(SecretStr(SECRET))
NO_MORE = RetryPolicy(max_attempts=1)
FAILURE = Failure("x", "y", "z")


def submitted(database: Database) -> UUID:
    """A queued job with a sealed token."""
    job_id = submit(database)
    with database.write() as session:
        job = repository.get(session, EVERYONE, job_id)
        job.hub_token = BOX.seal(SecretStr(TOKEN), job_id)
    return job_id


def end(database: Database, job_id: UUID, how: str) -> None:
    """The job has ended in one of the ways there are."""
    if how == "cancelled while it waits":
        with database.write() as session:
            repository.request_cancel(session, EVERYONE, job_id)
        return
    fence = claim(database, job_id, lease_seconds=0 if "lost" in how else 60).fence
    with database.write() as session:
        if how == "cancelled and lost":
            repository.request_cancel(session, EVERYONE, job_id)
    finish: dict[str, Callable[..., object]] = {
        "succeeded": lambda session: attempts.finish_succeeded(session, fence, ARTIFACT),
        "failed": lambda session: attempts.finish_failed(session, fence, FAILURE),
        "cancelled": lambda session: attempts.finish_cancelled(session, fence),
        "given up": lambda session: attempts.end_lost_attempt(
            session, fence, FAILURE, NO_MORE, cancel_requested=False
        ),
        "lost": lambda session: end_expired_attempts(session, NO_MORE),
        "cancelled and lost": lambda session: end_expired_attempts(session, NO_MORE),
    }
    with database.write() as session:
        finish[how](session)


@pytest.mark.parametrize(
    "how",
    [
        "succeeded",
        "failed",
        "cancelled",
        "cancelled while it waits",
        "given up",
        "lost",
        "cancelled and lost",
    ],
)
def test_every_end_wipes_the_token(database: Database, how: str) -> None:
    """However a job ends, nothing is left of its token."""
    job_id = submitted(database)
    end(database, job_id, how)
    job = read(database, job_id)
    assert job.finished_at is not None
    assert job.hub_token is None


def test_another_attempt_keeps_the_token(database: Database) -> None:
    """A job that waits again will need it again, and its worker gets it."""
    job_id = submitted(database)
    fence = claim(database, job_id).fence
    with database.write() as session:
        attempts.requeue(session, fence, cause="x", delay_seconds=0)
    sealed = claim(database, job_id).hub_token
    assert sealed is not None
    assert BOX.open(sealed, job_id).get_secret_value() == TOKEN


def test_the_database_refuses_an_ended_job_with_a_token(database: Database) -> None:
    """Code that forgets to wipe cannot end a job."""
    job_id = submitted(database)
    forgetful = text("UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = :id")
    with pytest.raises(IntegrityError, match="ended_has_no_token"), database.write() as session:
        session.execute(forgetful, {"id": job_id})


def test_a_token_is_shown_nowhere(
    settings: Settings, server: Server, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither answers, nor events, nor logs, nor any column of any table hold it; only the box opens it."""
    caplog.set_level(logging.DEBUG)
    with serve(settings.model_copy(update={"secret_key": SecretStr(SECRET)})) as url:
        own = Server(url, server.key)
        made = own.request("POST", "/v1/jobs", json=BODY, headers=HEADERS)
        assert made.status_code == 202
        job_id = made.json()["id"]
        answers = [own.request("GET", f"/v1/jobs/{job_id}{path}").text for path in ("", "/events")]
    with database.read() as session:
        tables = [
            str(session.execute(table.select()).mappings().all()) for table in Base.metadata.sorted_tables
        ]
    assert TOKEN not in "".join([made.text, *answers, *tables, caplog.text])
    sealed = read(database, UUID(job_id)).hub_token
    assert sealed is not None
    assert "hub_token" not in made.text
    assert BOX.open(sealed, UUID(job_id)).get_secret_value() == TOKEN


def test_the_token_is_no_part_of_the_spec(settings: Settings, server: Server) -> None:
    """With and without a token it is the same spec with the same digest; in the body it is refused."""
    with serve(settings.model_copy(update={"secret_key": SecretStr(SECRET)})) as url:
        own = Server(url, server.key)
        digests = {
            own.request("POST", "/v1/jobs", json=BODY, headers=headers).json()["spec_digest"]
            for headers in ({}, HEADERS)
        }
        assert len(digests) == 1
        refused = problem(own.submit({**BODY, "hub_token": TOKEN}), 422, "invalid_request")
    assert TOKEN not in json.dumps(refused)


def test_without_a_key_tokens_are_refused(server: Server, database: Database) -> None:
    """A service that cannot encrypt takes no token, says what to do, and makes no job."""
    found = problem(
        server.request("POST", "/v1/jobs", json=BODY, headers=HEADERS), 422, "tokens_not_accepted"
    )
    assert "GHOSTED_SECRET_KEY" in found["advice"]
    assert found["field"] == "X-Hub-Token"
    assert server.request("GET", "/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("token", ["short", "with a space in it", "x" * 600])
def test_what_cannot_be_a_token_is_refused_unshown(settings: Settings, server: Server, token: str) -> None:
    """The answer names the header and does not repeat what it held."""
    with serve(settings.model_copy(update={"secret_key": SecretStr(SECRET)})) as url:
        response = Server(url, server.key).request(
            "POST", "/v1/jobs", json=BODY, headers={"X-Hub-Token": token}
        )
    assert problem(response, 422, "invalid_request")["field"] == "X-Hub-Token"
    assert token not in response.text


def test_a_claim_does_not_show_the_token(database: Database) -> None:
    """Logging a claim by accident shows not even the sealed form."""
    job_id = submitted(database)
    assert "hub_token" not in repr(claim(database, job_id))
    assert Job.__table__.c.hub_token.nullable
