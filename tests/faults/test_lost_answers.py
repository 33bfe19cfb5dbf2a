"""A commit whose answer is lost has happened all the same; it counts, and counts once."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

import worker.supervisor
from services.db.sessions import Database, WriteSession
from services.jobs.states import JobState
from tests.faults.jobs import Jobs, stand_in
from tests.faults.parts import Parts
from tests.faults.processes import Processes
from tests.faults.worker_main import Actor
from worker.config import WorkerSettings
from worker.supervisor import Tools, supervise

Figure = Callable[[str, object], None]
LEASE_SECONDS = 3
SHORT = {
    "lease_seconds": LEASE_SECONDS,
    "heartbeat_seconds": 1,
    "sweep_seconds": 0.5,
    "retry_delay_seconds": 1,
}


@dataclass(frozen=True)
class Deaf(Database):
    """A database of which every second commit is not confirmed: the connection breaks just then."""

    commits: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def write(self) -> Iterator[WriteSession]:
        """A transaction that is committed, whether or not the caller hears of it."""
        with super().write() as session:
            yield session
        if next(self.commits) % 2 == 0:
            raise OperationalError("COMMIT", {}, ConnectionError("the server closed the connection"))


def test_every_second_answer_is_lost(
    database: Database,
    jobs: Jobs,
    settings: WorkerSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    """Claim, events and success each count once, and the files of the success stay.

    Production values.
    """
    monkeypatch.setattr(worker.supervisor, "Child", Actor)
    deaf = Deaf(database.engine)
    own = settings.model_copy(update={"scratch": tmp_path / "scratch"})
    job_id = jobs.submit(stand_in("quick.files3"))
    supervise(Tools(own, deaf, jobs.store, threading.Event()), job_id)
    job = jobs.read(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1)
    jobs.check_whole([job_id])
    assert jobs.types(job_id).count("metric") == 1
    figure("commits, of which half were not confirmed", next(deaf.commits))


def test_database_away_for_longer_than_a_lease(
    processes: Processes, jobs: Jobs, parts: Parts, figure: Figure
) -> None:
    """An attempt that ends because the database itself is away is not counted against the job.

    Short lease and sweep, and one attempt allowed: the job succeeds with the second one nevertheless.
    """
    processes.relay(max_attempts=1, **SHORT)
    worker_process = processes.worker(max_attempts=1, **SHORT)
    job_id = jobs.submit(stand_in("wait5"))
    worker_process.runner()
    parts.postgres.stop()
    stopped = time.monotonic()
    while not (worker_process.says("lease_lost") or worker_process.says("lost the database")):
        assert time.monotonic() < stopped + 60
        time.sleep(0.1)
    time.sleep(max(0.0, stopped + LEASE_SECONDS + 0.5 - time.monotonic()))
    away = time.monotonic() - stopped
    parts.postgres.start()
    job = jobs.wait_ended(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    causes = [event.payload.get("cause") for event in jobs.events(job_id) if event.type == "requeued"]
    assert causes == ["database_unavailable"]
    jobs.check_whole([job_id])
    figure("seconds away (lease 3)", away)
