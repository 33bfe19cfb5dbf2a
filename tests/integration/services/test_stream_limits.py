"""How many event streams are open at once."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from ghosted_client import Client, Event
from services.auth.repository import create_key
from services.config import Settings
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.attempts import Fence
from services.jobs.stream import EventStream
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server, claim
from tests.integration.services.test_api import problem
from tests.integration.services.test_stream import PATIENCE_SECONDS, finish, mine, opened


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(server: Server, job_id: UUID) -> int:
    with opened(server, job_id) as response:
        return response.status_code


def test_streams_of_a_key_are_limited(settings: Settings, server: Server, database: Database) -> None:
    """One more than allowed is 429 with Retry-After; one that is closed makes room; others' do not count."""
    with serve(settings.model_copy(update={"event_streams_per_key": 2})) as url, ExitStack() as streams:
        own = Server(url, server.key)
        job_id = mine(own)
        first = [streams.enter_context(opened(own, job_id)) for _ in range(2)]
        refused = own.request("GET", f"/v1/jobs/{job_id}/events/stream")
        problem(refused, 429, "too_many_streams")
        assert int(refused.headers["retry-after"]) > 0
        with database.write() as session:
            other = Server(url, create_key(session, "other"))
        assert status(other, mine(other)) == 200
        first[0].close()
        until(lambda: status(own, job_id) == 200)


def test_a_refused_stream_takes_no_place(settings: Settings, server: Server) -> None:
    """One of a job that is not there, or that has ended and was seen."""
    with serve(settings.model_copy(update={"event_streams_per_key": 1})) as url:
        own = Server(url, server.key)
        ended = mine(own)
        own.request("POST", f"/v1/jobs/{ended}/cancel")
        for _ in range(2):
            assert own.request("GET", f"/v1/jobs/{UUID(int=1)}/events/stream").status_code == 404
            done = own.request("GET", f"/v1/jobs/{ended}/events/stream", params={"after": 2})
            assert done.status_code == 204
        assert status(own, mine(own)) == 200


def test_who_watches_without_a_place_looks(settings: Settings, server: Server, database: Database) -> None:
    """The client misses nothing: it asks for the job and its events instead."""
    with (
        serve(settings.model_copy(update={"event_streams_per_key": 1})) as url,
        Client(url, server.key) as client,
    ):
        own = Server(url, server.key)
        job_id = mine(own)
        fence = claim(database, job_id).fence
        with opened(own, job_id):
            seen: list[str] = []
            for one in client.watch(job_id):
                if isinstance(one, Event):
                    seen.append(one.type)
                    if one.number == 2:
                        finish(database, fence)
    assert seen == ["submitted", "claimed", "log", "succeeded"]


def tell_much(database: Database, fence: Fence) -> None:
    """More than lies in the buffers on the way."""
    for _ in range(16):
        with database.write() as session:
            attempts.record_event(session, fence, "log", {"level": "info", "message": "x" * 1_000_000})


def test_who_reads_nothing_holds_no_place(
    settings: Settings, server: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that takes no byte for a while is dropped, and its place is another's."""
    monkeypatch.setattr(EventStream, "take_seconds", 1.0)
    with serve(settings.model_copy(update={"event_streams_per_key": 1})) as url:
        own = Server(url, server.key)
        job_id = mine(own)
        fence = claim(database, job_id).fence
        tell_much(database, fence)
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lines = [
                f"GET /v1/jobs/{job_id}/events/stream HTTP/1.1",
                f"Host: {where.netloc}",
                f"Authorization: Bearer {own.key}",
            ]
            deaf.sendall("\r\n".join([*lines, "", ""]).encode())
            other = mine(own)
            until(lambda: status(own, other) == 429)
            until(lambda: status(own, other) == 200)
