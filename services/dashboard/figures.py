"""Figures of many jobs at once, for lists: a fixed number of queries, however many jobs there are."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, func, select

from services.db.models import Artifact, Job, JobMetric
from services.db.sessions import ReadSession
from services.jobs.states import ACTIVE_STATES
from services.jobs.viewer import Viewer

# Jobs that wait or run are counted up to here.
MOST_COUNTED = 1000


def metrics_of(
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
