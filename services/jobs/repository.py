"""The jobs as their users see them: add, find, cancel, delete. Workers write through `attempts`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import joinedload

from ghosted_core.spec import CatalogModel, HubModel, JobSpec
from services.db.models import Artifact, Job
from services.db.sessions import ReadSession, WriteSession
from services.errors import JobFinishedError, JobNotFinishedError, JobNotFoundError
from services.jobs.listing import list_events, list_metrics
from services.jobs.rows import append_event, change_with_event, move
from services.jobs.states import FINAL_STATES, JobState
from services.jobs.viewer import Viewer
from services.workers.needs import UNKNOWN, Needs

__all__ = [
    "NewJob",
    "Viewer",
    "add",
    "get",
    "get_with_artifact",
    "list_events",
    "list_metrics",
    "lock_finished",
    "remove",
    "request_cancel",
]


@dataclass(frozen=True)
class NewJob:
    """What a submission brings."""

    spec: JobSpec
    deadline_seconds: int
    owner_id: UUID | None = None
    labels: Mapping[str, str] | None = None
    retry_of: UUID | None = None
    needs: Needs = UNKNOWN


def add(session: WriteSession, new: NewJob) -> Job:
    """A queued job with its first event."""
    job = Job(
        owner_id=new.owner_id,
        spec=new.spec.model_dump(mode="json"),
        spec_digest=new.spec.digest(),
        model=_model_name(new.spec),
        retry_of=new.retry_of,
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


def _model_name(spec: JobSpec) -> str | None:
    if isinstance(spec.model, HubModel):
        return spec.model.id
    # A path of some machine is nothing to be found by.
    return spec.model.alias if isinstance(spec.model, CatalogModel) else None


def get(session: ReadSession, viewer: Viewer, job_id: UUID) -> Job:
    """The job, if the viewer may see it.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
    """
    return _found(session, select(Job), viewer, job_id)


def get_with_artifact(session: ReadSession, viewer: Viewer, job_id: UUID) -> tuple[Job, Artifact | None]:
    """The job and its artifact: once it has succeeded, or missed a gate whose spec keeps the result.

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


def lock_finished(session: WriteSession, viewer: Viewer, job_id: UUID) -> Job:
    """The job, which has ended; nobody else changes it before the transaction ends.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
        JobNotFinishedError: it waits or runs.
    """
    job = _found(session, select(Job).with_for_update(), viewer, job_id)
    if job.state not in FINAL_STATES:
        raise JobNotFinishedError(f"job {job_id} is {job.state}")
    return job


def remove(session: WriteSession, job: Job) -> None:
    """The job's row is gone, and with it its events, metrics and artifact."""
    statement = delete(Job).where(Job.id == job.id)
    session.execute(statement.execution_options(synchronize_session=False))
