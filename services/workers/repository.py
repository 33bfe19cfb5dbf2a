"""The workers' table: who is there, who is gone, what each one runs."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from services.db.models import Job, Worker
from services.db.sessions import ReadSession, WriteSession
from services.jobs.rows import seconds
from services.jobs.states import JobState


@dataclass(frozen=True)
class Device:
    """Something that jobs run on: `kind` is cpu or cuda; memory None where it is not known."""

    kind: str
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class Beat:
    """What a worker says of itself; memory is that of the device its jobs run on."""

    id: str
    host: str
    pid: int
    version: str
    devices: tuple[Device, ...]
    memory_class: str
    memory_bytes: int | None
    free_memory_bytes: int | None
    free_disk_bytes: int | None


def record_beat(session: WriteSession, beat: Beat) -> None:
    """The worker is in the table, seen now; one that was taken for gone is back."""
    values: dict[str, Any] = {**asdict(beat), "devices": [asdict(device) for device in beat.devices]}
    changed = {name: value for name, value in values.items() if name != "id"}
    session.execute(
        insert(Worker)
        .values(**values)
        .on_conflict_do_update(index_elements=[Worker.id], set_={**changed, "last_seen_at": func.now()})
    )


def remove(session: WriteSession, worker_id: str) -> None:
    """The worker is not in the table: it has said so itself."""
    session.execute(delete(Worker).where(Worker.id == worker_id))


def forget_gone(session: WriteSession, *, after_seconds: float) -> Sequence[str]:
    """Workers that were silent for so long are not in the table; returns which they were."""
    statement = (
        delete(Worker).where(Worker.last_seen_at < func.now() - seconds(after_seconds)).returning(Worker.id)
    )
    return session.scalars(statement).all()


def is_live(lease_seconds: float) -> ColumnElement[bool]:
    """Whether a worker was seen as lately as one that runs a job must be."""
    return Worker.last_seen_at > func.now() - seconds(lease_seconds)


@dataclass(frozen=True)
class Seen:
    """A worker's row, whether it is live, and the job that it runs, if any."""

    worker: Worker
    live: bool
    job: Job | None


def list_workers(session: ReadSession, *, lease_seconds: float) -> Sequence[Seen]:
    """All workers in the table, by id."""
    query = select(Worker, is_live(lease_seconds)).order_by(Worker.id)
    rows = session.execute(query).all()
    found = session.scalars(running_on([worker.id for worker, _ in rows])) if rows else ()
    jobs = {job.worker: job for job in found}
    return [Seen(worker, live, jobs.get(worker.id)) for worker, live in rows]


def running_on(worker_ids: Collection[str]) -> Select[Job]:
    """The query of the jobs that these workers run."""
    return select(Job).where(Job.state == JobState.RUNNING, Job.worker.in_(worker_ids))
