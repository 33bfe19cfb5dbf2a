"""Who the workers are, and why a job waits for one."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text, update

from ghosted_core.spec import JobSpec
from services.auth.repository import create_key
from services.auth.scopes import ALL_SCOPES
from services.config import Settings
from services.db.models import OutboxMessage, Worker
from services.db.sessions import Database
from services.jobs import repository
from services.jobs.repository import NewJob
from services.jobs.rows import add_wake_up, seconds
from services.jobs.states import JobState
from services.outbox.relay import send_due
from services.outbox.sweeper import sweep_workers
from services.workers.classes import parse_classes
from services.workers.needs import Needs, catalog_needs
from services.workers.repository import Beat, Device, list_workers, record_beat, remove
from tests.integration.services.helpers import SPEC, Server, claim, read
from tests.integration.services.test_api import problem
from worker.admission import look_at
from worker.place import Room

GIB = 1 << 30
BEAT = Beat(
    id="host:7:ab",
    host="host",
    pid=7,
    version="1.2",
    devices=(Device("cuda", "NVIDIA H200", 140 * GIB),),
    memory_class="large",
    memory_bytes=140 * GIB,
    free_memory_bytes=130 * GIB,
    free_disk_bytes=500 * GIB,
)

# The machine of a worker does not tell what it has.
SAYS_NOTHING = {"memory_bytes": None, "free_memory_bytes": None, "free_disk_bytes": None}


def beat(database: Database, **changes: Any) -> None:
    """A worker was seen now."""
    with database.write() as session:
        record_beat(session, replace(BEAT, **changes))


def silent(database: Database, worker: str, by_seconds: float) -> None:
    """The worker was seen so much earlier."""
    with database.write() as session:
        session.execute(
            update(Worker)
            .where(Worker.id == worker)
            .values(last_seen_at=Worker.last_seen_at - seconds(by_seconds))
        )


@pytest.fixture
def operator(database: Database, server: Server) -> Server:
    """The API with a key that has every scope."""
    with database.write() as session:
        return replace(server, key=create_key(session, "operator", scopes=ALL_SCOPES))


def submit(database: Database, needs: Needs, owner: UUID | None = None) -> UUID:
    """A queued job that needs so much."""
    with database.write() as session:
        job = repository.add(session, NewJob(SPEC, 600, owner, needs=needs))
        add_wake_up(session, job)
        return job.id


def shown(server: Server) -> list[dict[str, Any]]:
    """What the API says of the workers."""
    answer = server.request("GET", "/v1/workers")
    assert answer.status_code == 200
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_a_worker_is_listed_as_it_is(database: Database, operator: Server) -> None:
    """The list says who a worker is, what it has, that it lives, and that it waits."""
    beat(database)
    (item,) = shown(operator)
    said = {**item, "started_at": None, "last_seen_at": None}
    device = {"kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 140 * GIB}
    plain = {name: getattr(BEAT, name) for name in Beat.__match_args__ if name != "devices"}
    doing = {"live": True, "busy": False, "running": None}
    assert said == {**plain, "devices": [device], **doing, "started_at": None, "last_seen_at": None}
    assert item["started_at"] == item["last_seen_at"]


def test_without_a_key_nothing_is_listed(database: Database, server: Server) -> None:
    """Who the workers are is for those who have a key."""
    beat(database)
    assert replace(server, key="wrong").request("GET", "/v1/workers").status_code == 401


def test_the_usual_scopes_do_not_list_workers(server: Server) -> None:
    """Workers belong to nobody: seeing them takes the scope admin, as the description of scopes says."""
    problem(server.request("GET", "/v1/workers"), 403, "scope_missing")


def test_later_beats_change_the_same_row(database: Database, settings: Settings) -> None:
    """A beat tells what is free now; the start stays what it was."""
    beat(database)
    silent(database, BEAT.id, 60)
    with database.read() as session:
        (before,) = list_workers(session, lease_seconds=settings.lease_seconds)
    beat(database, free_memory_bytes=5)
    with database.read() as session:
        (after,) = list_workers(session, lease_seconds=settings.lease_seconds)
    assert (before.live, after.live, after.worker.free_memory_bytes) == (False, True, 5)
    assert after.worker.started_at == before.worker.started_at


def test_workers_that_are_gone_are_forgotten(
    database: Database, settings: Settings, operator: Server
) -> None:
    """A silent worker is shown as not live for a while, then not at all; one that says so goes at once."""
    for name in ("lives:1:a", "silent:1:b", "left:1:c"):
        beat(database, id=name)
    silent(database, "silent:1:b", settings.lease_seconds + 1)
    with database.write() as session:
        remove(session, "left:1:c")
        assert sweep_workers(session, settings) == 0
    assert {item["id"]: item["live"] for item in shown(operator)} == {"lives:1:a": True, "silent:1:b": False}
    silent(database, "silent:1:b", settings.worker_keep_seconds)
    with database.write() as session:
        assert sweep_workers(session, settings) == 1
    assert [item["id"] for item in shown(operator)] == ["lives:1:a"]


def test_what_a_worker_runs(database: Database, operator: Server) -> None:
    """A worker with a job is busy; which job it is, only its owner is told."""
    beat(database, id="tester")
    own = UUID(operator.submit({"model": "owner/tiny", "layers": 2}).json()["id"])
    claim(database, own)
    (item,) = shown(operator)
    assert (item["busy"], item["running"]) == (True, {"job_id": str(own), "attempt": 1})
    with database.write() as session:
        session.execute(text("UPDATE jobs SET owner_id = NULL"))
    (item,) = shown(operator)
    assert (item["busy"], item["running"]) == (True, None)


def reason(server: Server, job_id: UUID) -> str | None:
    """Why the job waits."""
    with_key = server.request("GET", f"/v1/jobs/{job_id}")
    said: str | None = with_key.json()["waiting_reason"]
    return said


@pytest.fixture
def owned(database: Database, server: Server) -> Any:
    """Submits a job of the server's key that needs so much."""

    def make(needs: Needs) -> UUID:
        with database.read() as session:
            owner = session.scalar(text("SELECT id FROM api_keys"))
        return submit(database, needs, owner)

    return make


@pytest.mark.parametrize(
    ("needs", "changes", "said"),
    [
        (Needs(), {}, None),
        (Needs(130 * GIB, 500 * GIB), {}, None),
        (
            Needs(41 * GIB),
            {"memory_bytes": 24 * GIB},
            "needs 41.0 GiB of memory, the largest live worker has 24.0 GiB",
        ),
        (
            Needs(135 * GIB),
            {},
            "needs 135.0 GiB of memory, of which at most 130.0 GiB are free on a live worker",
        ),
        (
            Needs(None, 501 * GIB),
            {},
            "needs 501.0 GiB of disk, of which at most 500.0 GiB are free on a live worker",
        ),
        (Needs(999 * GIB, 9), SAYS_NOTHING, None),
    ],
)
def test_why_a_job_waits(
    database: Database, server: Server, owned: Any, needs: Needs, changes: dict[str, Any], said: str | None
) -> None:
    """A job that no worker can take says what it needs and what there is; any other says nothing."""
    beat(database, **changes)
    assert reason(server, owned(needs)) == said


def test_nobody_is_there(database: Database, server: Server, owned: Any, settings: Settings) -> None:
    """Without a live worker that is the reason, also if one went silent; an ended job has no reason."""
    job_id = owned(Needs(1, 1))
    assert reason(server, job_id) == "no live worker"
    beat(database)
    assert reason(server, job_id) is None
    silent(database, BEAT.id, settings.lease_seconds + 1)
    assert reason(server, job_id) == "no live worker"
    server.request("POST", f"/v1/jobs/{job_id}/cancel")
    assert reason(server, job_id) is None


def test_a_busy_worker_will_have_room(database: Database, server: Server, owned: Any) -> None:
    """Memory that a running job uses does not keep the next one from being possible."""
    beat(database, id="tester", free_memory_bytes=GIB)
    job_id = owned(Needs(100 * GIB))
    assert reason(server, job_id) is not None
    claim(database, submit(database, Needs()))
    assert reason(server, job_id) is None


def test_two_halves_are_no_whole(database: Database, server: Server, owned: Any) -> None:
    """One worker with memory and another with disk cannot share a job."""
    beat(database, id="memory", free_disk_bytes=GIB)
    beat(database, id="disk", free_memory_bytes=GIB)
    said = reason(server, owned(Needs(20 * GIB, 20 * GIB)))
    assert said == "needs 20.0 GiB of memory and 20.0 GiB of disk, which no live worker has both"


def test_the_catalogs_sizes_are_stored(database: Database, server: Server) -> None:
    """A job on a model whose size is known says what it needs in its row; another one leaves that open."""
    body = {"model": "smollm2-135m-instruct", "layers": 7}
    known, unknown = (
        read(database, UUID(server.submit(asked).json()["id"]))
        for asked in (body, {"model": "owner/tiny", "layers": 2})
    )
    expected = catalog_needs(JobSpec.model_validate(body))
    assert Needs(known.needs_memory_bytes, known.needs_disk_bytes) == expected
    assert (unknown.needs_memory_bytes, unknown.needs_disk_bytes) == (None, None)


def test_wake_ups_go_to_the_jobs_class(database: Database) -> None:
    """Each wake-up goes to the queue of the workers that may hold its job."""
    sizes = {submit(database, Needs(size)): size for size in (None, GIB, 20 * GIB, 99 * GIB)}
    sent: dict[UUID, str] = {}
    classes = parse_classes("small:16,medium:48,large")
    with database.write() as session:
        send_due(session, lambda _, job_id, queue: sent.update({job_id: queue}), classes=classes)
    assert {sizes[job_id]: queue for job_id, queue in sent.items()} == {
        None: "ghosted",
        GIB: "ghosted",
        20 * GIB: "ghosted.medium",
        99 * GIB: "ghosted.large",
    }


@pytest.mark.parametrize(
    ("needs", "room", "fits"),
    [
        (Needs(), Room(0, 0), True),
        (Needs(10, 10), Room(None, None), True),
        (Needs(10, 10), Room(10, 10), True),
        (Needs(11, 10), Room(10, 10), False),
        (Needs(10, 11), Room(10, 10), False),
        (Needs(None, 11), Room(None, 10), False),
    ],
)
def test_what_does_not_fit_is_declined(database: Database, needs: Needs, room: Room, fits: bool) -> None:  # noqa: FBT001
    """A worker without the room leaves the job as it is, and its wake-up is sent again, but later."""
    job_id = submit(database, needs)
    with database.write() as session:
        send_due(session, lambda *_: None)
        found = look_at(session, job_id, room)
    job = read(database, job_id)
    assert (found.spec is not None, found.declined is None) == (fits, fits)
    assert (job.state, job.attempt, job.event_count) == (JobState.QUEUED, 0, 1)
    with database.read() as session:
        waits = session.scalar(text("SELECT available_at > now() AND sent_at IS NULL FROM outbox"))
    assert waits is not fits


def test_declined_again_and_again(database: Database) -> None:
    """The wait of a job that keeps being declined doubles, up to a bit more than a minute."""
    job_id = submit(database, Needs(11))
    waits = []
    for _ in range(8):
        with database.write() as session:
            session.execute(update(OutboxMessage).values(available_at=text("now()")))
            send_due(session, lambda *_: None)
            look_at(session, job_id, Room(10, 10))
            waits.append(session.scalar(text("SELECT extract(epoch FROM available_at - now()) FROM outbox")))
    assert [float(wait) for wait in waits] == [5, 10, 20, 40, 80, 80, 80, 80]


def test_a_job_that_has_ended_is_not_declined(database: Database) -> None:
    """A late wake-up of a job that was cancelled changes nothing."""
    job_id = submit(database, Needs(11))
    with database.write() as session:
        repository.request_cancel(session, repository.Viewer(None), job_id)
        assert look_at(session, job_id, Room(10, 10)).declined is None
