"""The jobs as their users see them: add, find, list, cancel. Workers write through `attempts`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, select, true
from sqlalchemy.orm import joinedload

from ghosted_core.spec import JobSpec
from services.db.models import Artifact, Job, JobEvent, JobMetric
from services.db.sessions import ReadSession, WriteSession
from services.errors import JobFinishedError, JobNotFoundError
from services.jobs.rows import append_event, change_with_event, move
from services.jobs.states import FINAL_STATES, JobState
from services.workers.needs import UNKNOWN, Needs


@dataclass(frozen=True)
class Viewer:
    """Whose jobs may be seen: those of one key, or, where authentication is off, all."""

    owner_id: UUID | None

    def sees(self) -> ColumnElement[bool]:
        """The condition on a job's row."""
        return true() if self.owner_id is None else Job.owner_id == self.owner_id


@dataclass(frozen=True)
class NewJob:
    """What a submission brings."""

    spec: JobSpec
    deadline_seconds: int
    owner_id: UUID | None = None
    labels: Mapping[str, str] | None = None
    needs: Needs = UNKNOWN


def add(session: WriteSession, new: NewJob) -> Job:
    """A queued job with its first event."""
    job = Job(
        owner_id=new.owner_id,
        spec=new.spec.model_dump(mode="json"),
        spec_digest=new.spec.digest(),
        labels=dict(new.labels or {}),
        deadline_seconds=new.deadline_seconds,
        event_count=1,
        needs_memory_bytes=new.needs.memory_bytes,
        needs_disk_bytes=new.needs.disk_bytes,
    )
    session.add(job)
    session.flush()
    session.refresh(job)
    append_event(session, job, "submitted", {"spec_digest": job.spec_digest})
    return job


def get(session: ReadSession, viewer: Viewer, job_id: UUID) -> Job:
    """The job, if the viewer may see it.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
    """
    return _found(session, select(Job), viewer, job_id)


def get_with_artifact(session: ReadSession, viewer: Viewer, job_id: UUID) -> tuple[Job, Artifact | None]:
    """The job and, once it has succeeded, its artifact.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
    """
    job = _found(session, select(Job).options(joinedload(Job.artifact)), viewer, job_id)
    return job, job.artifact


def _found(session: ReadSession, query: Select[Job], viewer: Viewer, job_id: UUID) -> Job:
    job = session.scalars(query.where(Job.id == job_id, viewer.sees())).one_or_none()
    if job is None:
        raise JobNotFoundError(f"no job {job_id}")
    return job


def list_newest(
    session: ReadSession,
    viewer: Viewer,
    *,
    limit: int,
    after: UUID | None = None,
    state: JobState | None = None,
) -> Sequence[Job]:
    """At most `limit` jobs, newest first, those older than `after`."""
    query = select(Job).where(viewer.sees()).order_by(Job.id.desc()).limit(limit)
    if after is not None:
        query = query.where(Job.id < after)
    if state is not None:
        query = query.where(Job.state == state)
    return session.scalars(query).all()


def list_events(session: ReadSession, job_id: UUID, *, after: int, limit: int) -> Sequence[JobEvent]:
    """At most `limit` events with numbers above `after`, in order."""
    query = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.number > after)
        .order_by(JobEvent.number)
        .limit(limit)
    )
    return session.scalars(query).all()


def list_metrics(session: ReadSession, job: Job) -> Sequence[JobMetric]:
    """The figures of the job's latest attempt, in the order in which they were measured."""
    query = (
        select(JobMetric)
        .where(JobMetric.job_id == job.id, JobMetric.attempt == job.attempt)
        .order_by(JobMetric.number)
    )
    return session.scalars(query).all()


def queue_positions(session: ReadSession, jobs: Sequence[Job]) -> Mapping[UUID, int]:
    """For each queued job of `jobs`, how many jobs of anyone are to begin before it."""
    waiting = [job.id for job in jobs if job.state == JobState.QUEUED]
    if not waiting:
        return {}
    place = (func.row_number().over(order_by=Job.id) - 1).label("place")
    queue = select(Job.id, place).where(Job.state == JobState.QUEUED).subquery()
    rows = session.execute(select(queue.c.id, queue.c.place).where(queue.c.id.in_(waiting)))
    return {row.id: row.place for row in rows}


def request_cancel(session: WriteSession, viewer: Viewer, job_id: UUID) -> Job:
    """A queued job is cancelled; a running one is told to stop, which its worker does within seconds.

    Asking twice changes nothing.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
        JobFinishedError: the job has ended.
    """
    # The lock makes this decision and a worker's claim or finish follow one another.
    job = _found(session, select(Job).with_for_update(), viewer, job_id)
    if job.state in FINAL_STATES:
        raise JobFinishedError(f"job {job_id} is {job.state}")
    if job.state == JobState.QUEUED:
        return _cancel_queued(session, job) or job
    if job.cancel_requested_at is not None:
        return job
    return _ask_to_stop(session, job) or job


def _cancel_queued(session: WriteSession, job: Job) -> Job | None:
    ended: dict[str, Any] = {"cancel_requested_at": func.now(), "finished_at": func.now()}
    payload = {"reason": "requested"}
    return move(session, (Job.id == job.id,), JobState.QUEUED, JobState.CANCELLED, ended, payload)


def _ask_to_stop(session: WriteSession, job: Job) -> Job | None:
    values = {"cancel_requested_at": func.now()}
    return change_with_event(session, (Job.id == job.id,), values, event="cancel_requested", payload={})
