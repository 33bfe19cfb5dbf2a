"""What happens to a job, as it happens."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from services.db.sessions import Database
from services.jobs import attempts, feed
from services.jobs.attempts import Fence
from services.jobs.feed import Feed, Seen, looking_at
from services.jobs.stream import Watching, _start
from services.jobs.viewer import Viewer
from tests.integration.services.helpers import ARTIFACT, Server, claim, submit

PATIENCE_SECONDS = 30


@dataclass
class Message:
    event: str | None = None
    number: int | None = None
    data: Any = None
    comments: list[str] = field(default_factory=list)


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """Server-sent events, read by the rules of their specification."""
    current = Message()
    for line in lines:
        if not line:
            yield current
            current = Message()
        elif line.startswith(":"):
            current.comments.append(line[1:].strip())
        else:
            name, _, value = line.partition(": ")
            if name == "data":
                current.data = json.loads(value)
            elif name == "id":
                current.number = int(value)
            elif name == "event":
                current.event = value


@contextmanager
def opened(server: Server, job_id: UUID, **headers: str) -> Iterator[httpx2.Response]:
    sent = {"Authorization": f"Bearer {server.key}", **headers}
    url = f"{server.url}/v1/jobs/{job_id}/events/stream"
    with httpx2.stream("GET", url, headers=sent, timeout=PATIENCE_SECONDS) as response:
        yield response


def mine(server: Server) -> UUID:
    return UUID(server.submit({"model": "owner/tiny", "layers": 2}).json()["id"])


def finish(database: Database, fence: Fence) -> None:
    with database.write() as session:
        attempts.record_event(session, fence, "log", {"level": "info", "message": "almost"})
    with database.write() as session:
        attempts.finish_succeeded(session, fence, ARTIFACT)


def test_a_stream_tells_all_and_ends_with_the_job(server: Server, database: Database) -> None:
    """Every event once, in order, from before and after the request; then the ended job."""
    job_id = mine(server)
    fence = claim(database, job_id).fence
    with opened(server, job_id) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        received: list[Message] = []
        for message in messages(response.iter_lines()):
            received.append(message)
            if message.number == 2:
                threading.Thread(target=finish, args=(database, fence)).start()
    events = [one for one in received if one.number is not None]
    assert [one.number for one in events] == [1, 2, 3, 4]
    assert [one.event for one in events] == ["submitted", "claimed", "log", "succeeded"]
    assert [one.data["number"] for one in events] == [1, 2, 3, 4]
    last = received[-1]
    assert (last.event, last.number, last.data["state"], last.data["done"]) == (
        "job",
        None,
        "succeeded",
        True,
    )


def test_who_comes_back_goes_on(server: Server, database: Database) -> None:
    """With Last-Event-ID only what follows is sent; nothing, with 204, once all was seen."""
    job_id = mine(server)
    finish(database, claim(database, job_id).fence)
    with opened(server, job_id, **{"Last-Event-ID": "2"}) as response:
        numbers = [one.number for one in messages(response.iter_lines())]
    assert numbers == [3, 4, None]
    with opened(server, job_id, **{"Last-Event-ID": "4"}) as response:
        assert (response.status_code, response.read()) == (204, b"")


def test_progress_is_told(server: Server, database: Database) -> None:
    """A change that is no event comes as the job itself."""
    job_id = mine(server)
    fence = claim(database, job_id).fence
    with opened(server, job_id) as response:
        for message in messages(response.iter_lines()):
            if message.event == "job" and message.data["progress"] is None:
                with database.write() as session:
                    attempts.record_stage(session, fence, "calibrate", total=10)
                with database.write() as session:
                    attempts.record_progress(session, fence, "calibrate", 4)
            elif message.event == "job" and message.data["progress"]["done"] == 4:
                break


def test_a_deleted_job_ends_its_stream(server: Server, database: Database) -> None:
    """Who watches a job that goes is not left waiting."""
    job_id = mine(server)
    with opened(server, job_id) as response:
        for message in messages(response.iter_lines()):
            if message.event == "job" and not message.data["done"]:
                assert server.request("POST", f"/v1/jobs/{job_id}/cancel").status_code == 202
                assert server.request("DELETE", f"/v1/jobs/{job_id}").status_code == 204


def test_a_thousand_watchers_are_one_poller(database: Database) -> None:
    """However many watch, a look asks the database once for all; and all are told everything."""
    job_id = submit(database)
    fence = claim(database, job_id).fence
    looks: list[int] = []
    look = looking_at(database, lease_seconds=30)

    def counted(known: Mapping[UUID, int]) -> Mapping[UUID, Seen]:
        looks.append(len(known))
        return look(known)

    async def numbers(feed: Feed) -> list[bytes]:
        tools: Any = SimpleNamespace(database=database, settings=SimpleNamespace(lease_seconds=30))
        start = _start(tools, Viewer(None), job_id)
        return [one async for one in Watching(database, feed, job_id, start, 2).messages() if b"id: " in one]

    async def all_of_them() -> tuple[list[list[bytes]], float]:
        feed = Feed(counted, look_seconds=0.2)
        began = time.monotonic()
        watchers = [asyncio.create_task(numbers(feed)) for _ in range(200)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(finish, database, fence)
        return await asyncio.gather(*watchers), time.monotonic() - began

    received, taken = asyncio.run(all_of_them())
    assert all(len(one) == 2 for one in received)
    assert set(looks) == {1}
    assert len(looks) <= taken / 0.2 + 1


def test_no_fault_ends_the_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a look fails of, the next one is made, and who watches goes on."""
    monkeypatch.setattr(feed, "FAULT_SECONDS", 0.01)
    faults: list[Exception] = [TypeError("a fault of ours"), OSError("one of the machine")]
    seen = Seen(None)

    def look(known: Mapping[UUID, int]) -> Mapping[UUID, Seen]:
        if faults:
            raise faults.pop()
        return dict.fromkeys(known, seen)

    async def watched() -> Seen | None:
        async with Feed(look, look_seconds=0.01).watch(uuid4(), 0) as channel:
            await asyncio.wait_for(channel.changed.wait(), 5)
            return channel.seen

    assert asyncio.run(watched()) is seen


def test_silence_is_filled_with_pings(database: Database) -> None:
    """A comment comes when nothing else does, so that no proxy takes the stream for dead."""
    job_id = submit(database)
    tools: Any = SimpleNamespace(database=database, settings=SimpleNamespace(lease_seconds=30))
    start = _start(tools, Viewer(None), job_id)

    async def two_pings() -> int:
        feed = Feed(looking_at(database, lease_seconds=30))
        pings = 0
        async for message in Watching(database, feed, job_id, start, 0, ping_seconds=0.05).messages():
            pings += message == b": ping\n\n"
            if pings == 2:
                return pings
        return pings

    assert asyncio.run(two_pings()) == 2
