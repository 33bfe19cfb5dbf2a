"""A store that fails: what has arrived is not sent again, and nothing partial is ever listed."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from services.artifacts.connection import Patience
from services.artifacts.manifest import attempt_prefix
from services.artifacts.storage import ArtifactStore, open_store
from services.artifacts.transfers import AT_ONCE, Carrier, cut
from services.errors import StorageRefusedError
from services.jobs.states import JobState
from tests.faults.jobs import Jobs
from tests.faults.parts import Parts
from tests.faults.s3_proxy import (
    DENIED,
    Asked,
    Cut,
    CutAnswer,
    Delay,
    Fault,
    Hang,
    Proxy,
    Refuse,
    before,
)
from tests.faults.supervised import staged, supervising, unfinished
from worker.config import WorkerSettings
from worker.delivery import describe, upload

PART = 5 * 2**20
SIZE = 4 * PART + 2**21
PARTS = cut(SIZE, PART)
# The part that faults are aimed at, in the middle.
HIT = 3
Figure = Callable[[str, object], None]


@dataclass(frozen=True)
class Trouble:
    """A fault, how often it comes, and how many bytes it costs."""

    number: int
    fault: Fault
    resent: int


@pytest.fixture
def proxy(settings: WorkerSettings) -> Iterator[Proxy]:
    """A proxy before the store, without faults as yet."""
    with before(settings.s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def through(settings: WorkerSettings, proxy: Proxy, tmp_path: Path) -> WorkerSettings:
    """A worker that sees the store through the proxy."""
    changes = {"s3_endpoint": proxy.address, "s3_part_bytes": PART, "scratch": tmp_path / "scratch"}
    return settings.model_copy(update=changes)


@pytest.fixture
def carrier(through: WorkerSettings) -> Carrier:
    """As the courier has one, but with less time for an answer."""
    store = open_store(through, Patience(answer_seconds=6))
    return Carrier(store, through.s3_part_bytes, through.s3_patience_seconds)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of five parts, the last one shorter."""
    path = tmp_path / "checkpoint" / "model.safetensors"
    path.parent.mkdir()
    (path.parent / "ghosted.json").write_text("{}")
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def key() -> str:
    """A place of the test's own."""
    return f"jobs/{uuid4()}/1/model.safetensors"


def nothing(_: int) -> None:
    """Do not count."""


def folder(key: str) -> str:
    """The prefix that the key lies below."""
    return key.rpartition("/")[0] + "/"


def digest(store: ArtifactStore, key: str) -> str:
    """The SHA-256 of what lies under `key`, read past the proxy."""
    return hashlib.sha256(store.client.get_object(Bucket=store.bucket, Key=key)["Body"].read()).hexdigest()


def times(number: int, fault: Fault, hits: Callable[[Asked], bool]) -> Callable[[Asked], Fault | None]:
    """`fault` for the first `number` requests that `hits` picks."""
    left = [number]

    def plan(asked: Asked) -> Fault | None:
        if not left[0] or not hits(asked):
            return None
        left[0] -= 1
        return fault

    return plan


def check_whole(store: ArtifactStore, key: str, file: Path) -> None:
    """The file lies there byte for byte."""
    assert digest(store, key) == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "trouble",
    [
        # More often than the client library tries by itself.
        pytest.param(Trouble(6, Refuse(), 0), id="refused"),
        pytest.param(Trouble(1, Cut(0), 0), id="reset-at-once"),
        pytest.param(Trouble(2, Cut(PART // 2), PART), id="reset-within"),
        pytest.param(Trouble(1, CutAnswer(0), PART), id="answer-lost"),
        pytest.param(Trouble(1, Delay(8), PART), id="answer-slow"),
    ],
)
def test_only_the_part_that_was_hit_is_sent_again(
    carrier: Carrier,
    proxy: Proxy,
    store: ArtifactStore,
    file: Path,
    key: str,
    trouble: Trouble,
    figure: Figure,
) -> None:
    """After a fault at one part, of every other part each byte has been sent once."""
    proxy.plan = times(trouble.number, trouble.fault, lambda asked: asked.part == HIT)
    carrier.send(file, key, nothing)
    check_whole(store, key, file)
    others = {part.number: part.size_bytes for part in PARTS if part.number != HIT}
    assert {number: proxy.sent_of_part(number) for number in others} == others
    assert proxy.sent_of_part(HIT) == PART + trouble.resent
    figure("bytes sent again", proxy.sent_of_part(HIT) - PART)


def test_outage_in_the_middle(
    carrier: Carrier, proxy: Proxy, store: ArtifactStore, file: Path, key: str, figure: Figure
) -> None:
    """A store that resets every connection for ten seconds costs at most the parts under way."""
    begun = threading.Event()
    back = [0.0]

    def plan(asked: Asked) -> Fault | None:
        if asked.part == HIT and not begun.is_set():
            begun.set()
            back[0] = time.monotonic() + 10
        return Cut(PART // 2) if time.monotonic() < back[0] else None

    proxy.plan = plan
    arrived: list[int] = []
    carrier.send(file, key, arrived.append)
    check_whole(store, key, file)
    assert sum(arrived) == SIZE
    whole = [part.number for part in PARTS if proxy.sent_of_part(part.number) == part.size_bytes]
    assert len(whole) >= len(PARTS) - AT_ONCE
    figure("parts sent once", f"{len(whole)} of {len(PARTS)}")


def test_store_killed_in_the_middle(
    carrier: Carrier, proxy: Proxy, store: ArtifactStore, parts: Parts, file: Path, key: str, figure: Figure
) -> None:
    """The store's SIGKILL and restart within an upload lose none of the parts that it had taken."""
    carrier = Carrier(carrier.store, PART, patience_seconds=120)
    proxy.plan = times(1, Hang(), lambda asked: asked.part == HIT)
    sender = threading.Thread(target=carrier.send, args=(file, key, nothing))
    sender.start()
    assert proxy.hanging.wait(60)
    others = [part for part in PARTS if part.number != HIT]
    deadline = time.monotonic() + 60
    while any(proxy.sent_of_part(part.number) < part.size_bytes for part in others):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)  # The answers of the other parts.
    before = {part.number: proxy.sent_of_part(part.number) for part in others}
    parts.s3.restart()
    proxy.go_on.set()
    sender.join(180)
    assert not sender.is_alive()
    check_whole(store, key, file)
    assert {part.number: proxy.sent_of_part(part.number) for part in others} == before
    figure("bytes sent again", proxy.sent_of_part(HIT) - PART)


@pytest.mark.parametrize("kind", ["begin", "complete"])
def test_lost_answers_to_begin_and_complete(
    carrier: Carrier, proxy: Proxy, store: ArtifactStore, file: Path, key: str, kind: str
) -> None:
    """If the answer to an upload's first or last request is lost, the file arrives once and whole."""
    proxy.plan = times(2, CutAnswer(0), lambda asked: asked.kind == kind)
    files = describe(file.parent, lambda: None).files
    upload(carrier, folder(key), file.parent, files, nothing)
    check_whole(store, key, file)
    assert store.abort_uploads(folder(key)) == 0
    assert [proxy.sent_of_part(part.number) for part in PARTS] == [part.size_bytes for part in PARTS]


def test_nothing_partial_is_listed(
    carrier: Carrier, proxy: Proxy, store: ArtifactStore, file: Path, key: str
) -> None:
    """While a part is missing the store lists nothing; afterwards, the whole file."""
    proxy.plan = times(1, Hang(), lambda asked: asked.part == HIT)
    sender = threading.Thread(target=carrier.send, args=(file, key, nothing))
    sender.start()
    assert proxy.hanging.wait(60)
    assert list(store.list_objects(folder(key))) == []
    proxy.go_on.set()
    sender.join(60)
    assert [found.size_bytes for found in store.list_objects(folder(key))] == [SIZE]


def test_what_came_back_is_not_fetched_again(
    carrier: Carrier, proxy: Proxy, file: Path, key: str, tmp_path: Path, figure: Figure
) -> None:
    """A download that is cut within one part fetches the others once."""
    carrier.send(file, key, nothing)
    third = PARTS[HIT - 1].start
    proxy.plan = times(3, CutAnswer(PART // 2), lambda asked: asked.first_byte == third)
    carrier.fetch(key, tmp_path / "back", SIZE, nothing)
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    fetched = [asked.first_byte for asked in proxy.asked if asked.kind == "get"]
    assert sorted(set(fetched)) == [part.start for part in PARTS]
    assert [fetched.count(part.start) for part in PARTS] == [1, 1, 4, 1, 1]
    figure("parts fetched again", len(fetched) - len(PARTS))


def test_refusal_for_good_is_not_waited_out(carrier: Carrier, proxy: Proxy, file: Path, key: str) -> None:
    """A store that says no to the credentials is asked once, whatever the patience."""
    proxy.plan = lambda asked: Refuse(403, DENIED) if asked.part == HIT else None
    with pytest.raises(StorageRefusedError):
        carrier.send(file, key, nothing)
    assert [asked.part for asked in proxy.asked].count(HIT) == 1


def test_attempt_ends_where_patience_does(jobs: Jobs, proxy: Proxy, through: WorkerSettings) -> None:
    """A store that takes no part sends the job back to the queue, and keeps no unfinished upload."""
    proxy.plan = lambda asked: Refuse(500, b"") if asked.kind == "part" else None
    job_id = jobs.submit(staged("mib12"))
    with supervising(jobs, job_id, through, s3_patience_seconds=1) as running:
        job = running.join()
    assert job.state == JobState.QUEUED
    assert jobs.events(job_id)[-1].payload["cause"] == "storage_unavailable"
    assert proxy.count("begin") == 1
    running.check_gone()


def test_late_attempt_takes_back_what_it_uploaded(jobs: Jobs, proxy: Proxy, through: WorkerSettings) -> None:
    """A worker whose job went to another one leaves nothing of its own, and all of the other's."""
    proxy.plan = times(1, Hang(), lambda asked: asked.part == HIT)
    job_id = jobs.submit(staged("mib16"))
    with supervising(jobs, job_id, through) as running:
        assert proxy.hanging.wait(120)
        theirs = attempt_prefix(job_id, 2) + "model.safetensors"
        jobs.store.client.put_object(Bucket=jobs.store.bucket, Key=theirs, Body=b"theirs")
        with jobs.database.write() as session:
            taken = "UPDATE jobs SET lease_token = gen_random_uuid(), attempt = 2 WHERE id = :id"
            session.execute(text(taken), {"id": job_id})
        assert running.join().attempt == 2
    assert set(jobs.objects(job_id)) == {theirs}
    assert unfinished(jobs.store, job_id) == []


def test_a_whole_job_on_a_bad_store(jobs: Jobs, proxy: Proxy, through: WorkerSettings) -> None:
    """With every fifth request refused and every seventh cut, the first attempt succeeds."""

    def plan(asked: Asked) -> Fault | None:
        number = len(proxy.asked)
        if number % 5 == 0:
            return Refuse()
        return Cut(2**20) if number % 7 == 0 else None

    proxy.plan = plan
    job_id = jobs.submit(staged("mib30"))
    with supervising(jobs, job_id, through) as running:
        job = running.join()
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1)
    jobs.check_whole([job_id])
