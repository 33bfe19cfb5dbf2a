"""The SQL of the pages about single jobs; each query reads a part of an index, never a whole table."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select, tuple_
from sqlalchemy.orm import joinedload

from services.dashboard.job_timeline import TOLD_BY
from services.db.models import Job, JobEvent, JobMetric
from services.db.sessions import ReadSession
from services.errors import JobNotFoundError
from services.jobs.states import JobState
from services.jobs.viewer import Viewer

# Twenty excused attempts of ten stages, started and finished, and to spare.
MOST_TOLD = 1000


def timeline_events(session: ReadSession, job_id: UUID) -> Sequence[JobEvent]:
    """The events that tell of attempts and stages, in order."""
    query = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.type.in_(TOLD_BY))
        .order_by(JobEvent.number)
        .limit(MOST_TOLD)
    )
    return session.scalars(query).all()


def latest_events(session: ReadSession, job_id: UUID, *, limit: int) -> Sequence[JobEvent]:
    """The last `limit` events but for lines of the log, in order."""
    query = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.type != "log")
        .order_by(JobEvent.number.desc())
        .limit(limit)
    )
    return session.scalars(query).all()[::-1]


def jobs_with_artifacts(session: ReadSession, viewer: Viewer, ids: Sequence[UUID]) -> Sequence[Job]:
    """The jobs of these ids, in their order, each with its artifact.

    Raises:
        JobNotFoundError: one does not exist, or belongs to another key.
    """
    query = select(Job).options(joinedload(Job.artifact)).where(Job.id.in_(ids), viewer.sees())
    found = {job.id: job for job in session.scalars(query)}
    for job_id in ids:
        if job_id not in found:
            raise JobNotFoundError(f"no job {job_id}")
    return [found[job_id] for job_id in ids]


def metrics_of(session: ReadSession, jobs: Sequence[Job]) -> dict[UUID, list[JobMetric]]:
    """The figures of each job's latest attempt, as they were measured."""
    found: dict[UUID, list[JobMetric]] = {job.id: [] for job in jobs}
    latest = [(job.id, job.attempt) for job in jobs]
    query = (
        select(JobMetric)
        .where(tuple_(JobMetric.job_id, JobMetric.attempt).in_(latest))
        .order_by(JobMetric.job_id, JobMetric.number)
    )
    for metric in session.scalars(query):
        found[metric.job_id].append(metric)
    return found


def newest_succeeded(session: ReadSession, viewer: Viewer, *, limit: int) -> Sequence[Job]:
    """At most `limit` jobs that have succeeded, newest first."""
    query = (
        select(Job).where(viewer.sees(), Job.state == JobState.SUCCEEDED).order_by(Job.id.desc()).limit(limit)
    )
    return session.scalars(query).all()
