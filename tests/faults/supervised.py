"""Attempts that a thread of the test supervises, on the stage of staged.py; what they must not leave."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import worker.supervisor
from ghosted_core.spec import JobSpec
from services.artifacts.manifest import job_prefix
from services.artifacts.storage import ArtifactStore, open_store
from services.db.models import Job
from services.db.sessions import Database
from services.embedded.process import processes_in
from services.jobs import repository
from services.jobs.states import FINAL_STATES
from tests.faults.jobs import EVERYONE, Jobs
from tests.faults.staged import STAYING
from worker.child import Child
from worker.config import WorkerSettings
from worker.protocol import Message
from worker.supervisor import Tools, supervise

STAND_IN = "tests.faults.staged"
ANSWERED = frozenset({"worker.runner", "worker.verifier"})


def staged(*words: str) -> JobSpec:
    """A job for the stand-in."""
    return JobSpec.model_validate({"model": f"staged/{'.'.join(words) or 'quick'}", "layers": 2})


class Actor(Child):
    """A child for which the stand-in plays."""

    def __init__(self, module: str, request: Message, **rest: Any) -> None:
        super().__init__(STAND_IN if module in ANSWERED else module, request, **rest)


@dataclass(frozen=True)
class Supervised:
    """An attempt under way."""

    jobs: Jobs
    job_id: UUID
    scratch: Path
    shutdown: threading.Event
    thread: threading.Thread

    def reach(self, stage: str) -> None:
        """The job is in `stage`."""
        self.jobs.wait(self.job_id, lambda job: job.stage == stage or job.state in FINAL_STATES, 120)
        assert self.jobs.read(self.job_id).stage == stage

    def is_staying(self) -> bool:
        """Whether the stand-in is where it was told to stay."""
        return any(self.scratch.glob(f"*/{STAYING}"))

    def cancel(self) -> None:
        """The user asked for the end."""
        cancel(self.jobs.database, self.job_id)

    def join(self, seconds: float = 120) -> Job:
        """The job, once nobody supervises it any more."""
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.jobs.read(self.job_id)

    def check_gone(self) -> None:
        """No process, no file of the attempt is left, and nothing of the job in the store."""
        assert processes_in(self.scratch.resolve()) == ()
        assert list(self.scratch.iterdir()) == []
        assert self.jobs.objects(self.job_id) == {}
        assert unfinished(self.jobs.store, self.job_id) == []


def cancel(database: Database, job_id: UUID) -> Job:
    """What a request to cancel does."""
    with database.write() as session:
        return repository.request_cancel(session, EVERYONE, job_id)


def seconds_to_end(job: Job) -> float:
    """From the request to the end, by the database's clock."""
    assert job.cancel_requested_at is not None
    assert job.finished_at is not None
    return (job.finished_at - job.cancel_requested_at).total_seconds()


def unfinished(store: ArtifactStore, job_id: UUID) -> list[str]:
    """The keys of the job's unfinished uploads."""
    answer = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=job_prefix(job_id))
    return [upload["Key"] for upload in answer.get("Uploads", [])]


def soon(look: Callable[[], object], seconds: float = 120) -> None:
    """`look` has said yes."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, look
        time.sleep(0.05)


@contextmanager
def supervising(
    jobs: Jobs, job_id: UUID, settings: WorkerSettings, *, actor: type[Child] = Actor, **changes: object
) -> Iterator[Supervised]:
    """The job is claimed and worked on while the body runs; it is told to end afterwards."""
    changed = settings.model_copy(update=changes)
    assert changed.scratch is not None
    shutdown = threading.Event()
    tools = Tools(changed, jobs.database, open_store(changed), shutdown)
    thread = threading.Thread(target=supervise, args=(tools, job_id))
    with patch.object(worker.supervisor, "Child", actor):
        thread.start()
        try:
            yield Supervised(jobs, job_id, changed.scratch, shutdown, thread)
        finally:
            shutdown.set()
            thread.join(60)
