"""What the clients make of answers that are lost, late or refused for the moment."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from ghosted_client import (
    AsyncClient,
    Client,
    Event,
    InvalidError,
    Job,
    NotFoundError,
    Patience,
    TemporaryError,
    TooManyError,
)
from ghosted_client.errors import UnexpectedAnswerError
from services.config import Settings
from services.db.sessions import Database
from services.embedded.ports import find_free
from services.jobs import attempts
from tests.integration.services.clients import KINDS, opened
from tests.integration.services.conftest import serve
from tests.integration.services.front import Answer, Cut, Front, standing_before
from tests.integration.services.helpers import SPEC, Server, claim, environment

STREAM = "/events/stream"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return str(request.param)


@pytest.fixture
def front(base_url: str) -> Iterator[Front]:
    """What stands before the API."""
    with standing_before(base_url) as made:
        yield made


@pytest.fixture
def client(kind: str, front: Front, server: Server) -> Iterator[Client]:
    """Each of the two clients in turn, with the front before the API."""
    with opened(kind, Server(front.url, server.key)) as made:
        yield made


@pytest.mark.parametrize("act", ["submit", "retry"])
def test_a_lost_answer_makes_no_second_job(client: Client, front: Front, act: str) -> None:
    """The request is sent again with the same Idempotency-Key, and the service answers as before."""
    first = client.submit(SPEC)
    front.heard.clear()
    front.faults = [Cut(0)]
    job = client.submit(SPEC) if act == "submit" else client.retry(first.id)
    assert {one.id for one in client.jobs()} == {first.id, job.id}
    keys = [one.headers["idempotency-key"] for one in front.of("POST")]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_lost_answer_to_an_end_is_no_error(client: Client, front: Front) -> None:
    """Cancelled or deleted before, the job is as it was asked for; a job that never was is an error."""
    job = client.submit(SPEC)
    front.faults = [Cut(0)]
    assert client.cancel(job.id).state == "cancelled"
    front.faults = [Cut(0)]
    client.delete(job.id)
    with pytest.raises(NotFoundError):
        client.delete(job.id)


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_for_the_moment_is_waited_out(client: Client, front: Front, status: int) -> None:
    """The same request is sent again, and not before `Retry-After`; its sender does not notice."""
    front.faults = [Answer(status, {"Retry-After": "1"})]
    assert client.submit(SPEC).state == "queued"
    refused, answered = front.of("POST")
    assert answered.at - refused.at >= 1
    assert len(list(client.jobs())) == 1


def test_a_limit_of_the_service_is_handed_on(kind: str, settings: Settings, server: Server) -> None:
    """A 429 that asks for more patience than there is becomes an error that says for how long."""
    patience = Patience(longest_seconds=0.5)
    limited = settings.model_copy(update={"requests_per_minute": 1})
    with serve(limited) as url, opened(kind, Server(url, server.key), patience) as client:
        client.list()
        with pytest.raises(TooManyError) as caught:
            client.list()
    assert caught.value.code == "too_many_requests"
    assert caught.value.problem.retry_after_seconds is not None
    assert 1 <= caught.value.problem.retry_after_seconds <= 60


def test_other_servers_refusals_are_told_apart(client: Client, front: Front) -> None:
    """A proxy's 502 may pass and is waited out; its page for anything else is not the service's answer."""
    front.faults = [Answer(502, body=b"<html>")]
    assert client.list().items == ()
    front.faults = [Answer(418, body=b"<html>")]
    with pytest.raises(UnexpectedAnswerError):
        client.list()


def test_patience_ends(kind: str, front: Front, server: Server) -> None:
    """A service that never recovers is an error, after as many tries as there is patience for."""
    front.faults = [Answer(503)] * 9
    patience = Patience(waits_seconds=(0.01, 0.01))
    with opened(kind, Server(front.url, server.key), patience) as client, pytest.raises(TemporaryError):
        client.list()
    assert len(front.heard) == 3


def test_the_hub_token_goes_with_the_submission_only(client: Client, front: Front) -> None:
    """It is a header of the request that needs it, and of no other."""
    with pytest.raises(InvalidError, match="Hub tokens"):
        # This service has no key to seal tokens with, and says so.
        client.submit(SPEC, hub_token="hf_no_ones")  # noqa: S106
    client.list()
    tokens = {one.method: one.headers.get("x-hub-token") for one in front.heard}
    assert tokens == {"POST": "hf_no_ones", "GET": None}


def finish_later(
    database: Database, job_id: UUID, ready: Callable[[], object] = lambda: True
) -> threading.Thread:
    """Work that, once `ready` says so, records twenty events and ends the job."""

    def work() -> None:
        while not ready():
            time.sleep(0.02)
        fence = claim(database, job_id).fence
        for index in range(20):
            with database.write() as session:
                attempts.record_event(session, fence, "log", {"index": index})
        with database.write() as session:
            attempts.finish_cancelled(session, fence)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def numbers(seen: Iterator[Event | Job]) -> list[int]:
    """Of the events."""
    return [one.number for one in seen if isinstance(one, Event)]


def test_a_stream_that_breaks_is_taken_up_again(client: Client, front: Front, database: Database) -> None:
    """It goes on after the last event that came; none is lost, none comes twice."""
    job = client.submit(SPEC)
    front.fits = lambda request: request.path.endswith(STREAM)
    # In the middle of a message, wherever that is.
    front.faults = [Cut(1500), Cut(2500)]
    worker = finish_later(database, job.id, lambda: front.of("GET", STREAM))
    assert numbers(client.watch(job.id, timeout_seconds=60)) == list(range(1, 24))
    worker.join()
    resumed = [int(one.headers["last-event-id"]) for one in front.of("GET", STREAM)]
    assert resumed == sorted(resumed)
    assert len(resumed) >= 2


@pytest.mark.parametrize(
    "fault", [Answer(404, body=b"<html>"), Answer(200, {"Content-Type": "text/event-stream"})]
)
def test_without_a_stream_it_looks_again_and_again(
    client: Client, front: Front, database: Database, fault: Answer
) -> None:
    """Where there is no stream, or a silent one, the job is asked for, with its ETag; nothing is lost."""
    job = client.submit(SPEC)
    front.fits = lambda request: request.path.endswith(STREAM)
    front.faults = [fault] * 9
    seen: list[Event | Job] = []
    worker: threading.Thread | None = None
    for one in client.watch(job.id, timeout_seconds=60):
        seen.append(one)
        worker = worker or finish_later(database, job.id)
    assert worker is not None
    worker.join()
    assert numbers(iter(seen)) == list(range(1, 24))
    assert len(front.of("GET", STREAM)) == 1
    asked = front.of("GET", f"/{job.id}")
    assert "if-none-match" not in asked[0].headers
    assert "if-none-match" in asked[1].headers


def test_a_service_that_stays_away_is_told(kind: str, front: Front, server: Server) -> None:
    """After `outage_seconds` the watcher has the service's last refusal, and not an hour later."""
    impatient = Patience(waits_seconds=())
    with opened(kind, Server(front.url, server.key), impatient) as client:
        job = client.submit(SPEC)
        seen = client.watch(job.id, poll_seconds=0.01, outage_seconds=2)
        next(seen)
        front.faults = [Answer(503, {"Retry-After": after}) for after in ("0", "3600")]
        with pytest.raises(TemporaryError) as caught:
            list(seen)
    assert caught.value.problem.retry_after_seconds == 3600


def test_a_task_that_is_cancelled_leaves_a_client_that_works(server: Server) -> None:
    """Whether it watched or waited for an answer."""

    async def run() -> str:
        async with AsyncClient(server.url, server.key) as client:
            job = await client.submit(SPEC)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.wait(job.id)
            return (await client.cancel(job.id)).state

    assert asyncio.run(run()) == "cancelled"


@contextmanager
def api_process(settings: Settings, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m services.api` on that port; killed at the end."""
    own = {**environment(settings), "GHOSTED_API_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-m", "services.api"],
        env=own,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_service_that_is_killed_and_comes_back(kind: str, settings: Settings, server: Server) -> None:
    """Whoever watches the job goes on as if nothing had been."""
    (port,) = find_free(1)
    direct = Server(f"http://127.0.0.1:{port}", server.key)
    # The first start takes a while on a busy machine.
    patient = Patience(waits_seconds=(0.5,) * 120)
    with api_process(settings, port) as first, opened(kind, direct, patient) as client:
        job = client.submit(SPEC)
        seen = client.watch(job.id, timeout_seconds=120)
        before = [next(seen), next(seen)]
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with api_process(settings, port):
            with Client(server.url, server.key) as other:
                other.cancel(job.id)
            after = list(seen)
    types = [one.type for one in (*before, *after) if isinstance(one, Event)]
    assert types == ["submitted", "cancelled"]
    last = after[-1]
    assert isinstance(last, Job)
    assert last.state == "cancelled"
