"""The SQL of the pages about jobs: however many there are, a fixed number of queries of parts of indexes."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, exists, func, select, tuple_
from sqlalchemy.orm import joinedload

from services.dashboard.job_layers import CHOSEN
from services.dashboard.job_timeline import TOLD_BY
from services.db.models import Artifact, Job, JobEvent, JobMetric
from services.db.sessions import ReadSession
from services.errors import JobNotFoundError
from services.jobs.states import ACTIVE_STATES, JobState
from services.jobs.viewer import Viewer

# Twenty excused attempts of ten stages, started and finished, and to spare.
MOST_TOLD = 1000
# Jobs that wait or run are counted up to here; of failed ones so many are asked whether they left something.
MOST_COUNTED = 1000


def timeline_events(session: ReadSession, job_id: UUID) -> Sequence[JobEvent]:
    """The events that tell of attempts, stages and layers, in order."""
    query = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.type.in_((*TOLD_BY, CHOSEN)))
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


def newest_with_result(session: ReadSession, viewer: Viewer, *, limit: int) -> Sequence[Job]:
    """At most `limit` jobs that have succeeded, or missed their gate and kept the result; newest first."""
    newest = select(Job).where(viewer.sees()).order_by(Job.id.desc())
    failed = (
        newest.with_only_columns(Job.id).where(Job.state == JobState.FAILED).limit(MOST_COUNTED).subquery()
    )
    kept = newest.where(Job.id.in_(select(failed.c.id)), exists().where(Artifact.job_id == Job.id))
    succeeded = newest.where(Job.state == JobState.SUCCEEDED)
    found = [job for query in (succeeded, kept) for job in session.scalars(query.limit(limit))]
    return sorted(found, key=lambda job: job.id, reverse=True)[:limit]


def values_of(
    session: ReadSession, jobs: Sequence[Job], names: Sequence[str]
) -> Mapping[UUID, Mapping[str, float | None]]:
    """For each of `jobs` the values of its latest attempt's metrics with these names."""
    query = (
        select(JobMetric.job_id, JobMetric.name, JobMetric.value)
        .join(Job, (Job.id == JobMetric.job_id) & (Job.attempt == JobMetric.attempt))
        .where(JobMetric.job_id.in_([job.id for job in jobs]), JobMetric.name.in_(names))
        .order_by(JobMetric.job_id, JobMetric.number)
    )
    found: dict[UUID, dict[str, float | None]] = {}
    for job_id, name, value in session.execute(query):
        found.setdefault(job_id, {})[name] = value
    return found


def layer_counts(session: ReadSession, jobs: Sequence[Job]) -> Mapping[UUID, int]:
    """For each of `jobs` that has succeeded, how many layers the unpruned model has."""
    count: Any = Artifact.manifest["summary"]["source"]["layer_count"].astext
    query = select(Artifact.job_id, count.cast(Integer).label("layers")).where(
        Artifact.job_id.in_([job.id for job in jobs]), count.is_not(None)
    )
    return {row.job_id: row.layers for row in session.execute(query)}


def active_counts(session: ReadSession, viewer: Viewer) -> Mapping[str, int]:
    """How many of the viewer's jobs wait and run; counted up to MOST_COUNTED together."""
    active = (
        select(Job.state).where(viewer.sees(), Job.state.in_(ACTIVE_STATES)).limit(MOST_COUNTED).subquery()
    )
    query = select(active.c.state, func.count().label("jobs")).group_by(active.c.state)
    return {row.state: row.jobs for row in session.execute(query)}
