"""Before a job is claimed: is there room for it here and now?"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import func, select, update

from ghosted_core.spec import JobSpec
from services.db.models import Job, OutboxMessage
from services.db.sessions import WriteSession
from services.jobs.rows import RUN_JOB, seconds
from services.jobs.states import JobState
from services.workers.classes import GIB
from worker.place import Place, Room

# A wake-up that was declined comes back after this, then after twice that, up to so many doublings.
DECLINED_SECONDS = 5.0
MOST_DOUBLINGS = 4


@dataclass(frozen=True)
class Look:
    """What a job is, as far as this version understands it, and why it is not taken, if it is not."""

    spec: JobSpec | None = None
    declined: str | None = None


def look_at(session: WriteSession, job_id: UUID, room: Room) -> Look:
    """The job, which is declined if it needs more room than there is; then its wake-up comes again later.

    It stays as it is, without an attempt: a worker with more room, or this one when it has more, may
    take it.
    """
    job = session.scalars(select(Job).where(Job.id == job_id, Job.state == JobState.QUEUED)).one_or_none()
    if job is None:
        return Look()
    lacking = _lacking("memory", job.needs_memory_bytes, room.memory_bytes) or _lacking(
        "disk", job.needs_disk_bytes, room.disk_bytes
    )
    if lacking is not None:
        send_again_later(session, job_id)
        return Look(declined=lacking)
    return Look(spec=_spec(job))


def _spec(job: Job) -> JobSpec | None:
    try:
        return JobSpec.model_validate(job.spec)
    except ValidationError:
        return None  # The attempt will say so.


def send_again_later(session: WriteSession, job_id: UUID) -> None:
    """The job's wake-up will be sent again, later the more often it was sent."""
    doublings = func.least(func.greatest(OutboxMessage.sends - 1, 0), MOST_DOUBLINGS)
    later = func.now() + seconds(DECLINED_SECONDS * func.power(2, doublings))
    session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.job_id == job_id, OutboxMessage.topic == RUN_JOB)
        .values(sent_at=None, available_at=later)
        .execution_options(synchronize_session=False)
    )


def _lacking(what: str, needed: int | None, free: int | None) -> str | None:
    if needed is None or free is None or needed <= free:
        return None
    return f"it needs {needed / GIB:.1f} GiB of {what}, of which {free / GIB:.1f} are free"


@contextmanager
def only_one(place: Place) -> Iterator[bool]:
    """Whether no other worker of this machine runs a job on the GPU; none will while the body runs.

    Where jobs run on the CPU, several may. Workers know of each other by the folder of scratch.
    """
    gpu = place.gpu_identity()
    if gpu is None:
        yield True
        return
    place.scratch.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{os.getuid()} {gpu}".encode()).hexdigest()[:16]
    descriptor = os.open(
        place.scratch / f".ghosted-gpu-{name}", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600
    )
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
