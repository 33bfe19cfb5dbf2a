"""Finds jobs, and what belongs to them, by their indexes: none of this reads a whole table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Select,
    Uuid,
    column,
    func,
    literal_column,
    select,
    values,
)

from services.db.ids import uuid7
from services.db.models import Job, JobEvent, JobMetric
from services.db.sessions import ReadSession
from services.jobs.states import JobState
from services.jobs.viewer import Viewer

# Positions are counted up to here; a queue may be a million jobs long.
LONGEST_COUNTED_QUEUE = 1000
# Ids hold the time of the API's clock, `created_at` that of the database's.
CLOCK_SLACK = timedelta(minutes=5)
NOISE_BITS = 74


@dataclass(frozen=True)
class Filters:
    """Which jobs to list; what is None or empty lets every job through.

    `created_from` is included, `created_before` is not. A job passes with all of `labels`.
    """

    state: JobState | None = None
    model: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_from: datetime | None = None
    created_before: datetime | None = None


def newest(viewer: Viewer, filters: Filters, *, limit: int, after: UUID | None = None) -> Select[Job]:
    """The query for at most `limit` jobs, newest first, those older than `after`."""
    query = select(Job).where(viewer.sees(), *_conditions(filters))
    if after is not None:
        query = query.where(Job.id < after)
    return query.order_by(Job.id.desc()).limit(limit)


def list_newest(
    session: ReadSession,
    viewer: Viewer,
    *,
    limit: int,
    after: UUID | None = None,
    filters: Filters | None = None,
) -> Sequence[Job]:
    """At most `limit` jobs, newest first, those older than `after`."""
    return session.scalars(newest(viewer, filters or Filters(), limit=limit, after=after)).all()


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if filters.state is not None:
        found.append(Job.state == filters.state)
    if filters.model is not None:
        found.append(Job.model == filters.model)
    if filters.labels:
        # The second condition is what the index is restricted to: most jobs have no label.
        found += [
            Job.labels.contains(dict(filters.labels)),
            literal_column("labels <> '{}'::jsonb", Boolean()),
        ]
    if filters.created_from is not None:
        found += [
            Job.created_at >= filters.created_from,
            Job.id >= _id_at(filters.created_from, -CLOCK_SLACK),
        ]
    if filters.created_before is not None:
        found += [
            Job.created_at < filters.created_before,
            Job.id < _id_at(filters.created_before, CLOCK_SLACK),
        ]
    return found


def _id_at(moment: datetime, slack: timedelta) -> UUID:
    # Ids begin with milliseconds since 1970, so that a span of time is a span of the index.
    milliseconds = round((moment.timestamp() + slack.total_seconds()) * 1000)
    return uuid7(min(max(milliseconds, 0), 2**48 - 1), 0)


def events_after(job_id: UUID, *, after: int, limit: int) -> Select[JobEvent]:
    """The query for at most `limit` events with numbers above `after`, in order."""
    return (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.number > after)
        .order_by(JobEvent.number)
        .limit(limit)
    )


def list_events(session: ReadSession, job_id: UUID, *, after: int, limit: int) -> Sequence[JobEvent]:
    """At most `limit` events with numbers above `after`, in order."""
    return session.scalars(events_after(job_id, after=after, limit=limit)).all()


def last_log_events(session: ReadSession, job_id: UUID, *, limit: int) -> Sequence[JobEvent]:
    """The last `limit` events of type `log`, in order."""
    query = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.type == "log")
        .order_by(JobEvent.number.desc())
        .limit(limit)
    )
    return session.scalars(query).all()[::-1]


def list_metrics(session: ReadSession, job: Job) -> Sequence[JobMetric]:
    """The figures of the job's latest attempt, in the order in which they were measured."""
    query = (
        select(JobMetric)
        .where(JobMetric.job_id == job.id, JobMetric.attempt == job.attempt)
        .order_by(JobMetric.number)
    )
    return session.scalars(query).all()


def places(waiting: Sequence[UUID]) -> Select[UUID, int]:
    """The query for the places of queued jobs: how many jobs of anyone are to begin before each.

    Only places below LONGEST_COUNTED_QUEUE are found. The newest jobs of a long queue are further back:
    that one look at an index tells, and numbers are given no further than to the last that needs one.
    """
    queued = select(Job.id).where(Job.state == JobState.QUEUED).order_by(Job.id)
    edge = queued.offset(LONGEST_COUNTED_QUEUE - 1).limit(1).scalar_subquery()
    named = values(column("id", Uuid()), name="named").data([(one,) for one in waiting])
    last = (
        select(named.c.id)
        .where(edge.is_(None) | (named.c.id <= edge))
        .order_by(named.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    front = queued.where(Job.id <= last).limit(LONGEST_COUNTED_QUEUE).subquery()
    place = (func.row_number().over(order_by=front.c.id) - 1).label("place")
    queue = select(front.c.id, place).subquery()
    return select(queue.c.id, queue.c.place).where(queue.c.id.in_(waiting))


def queue_positions(session: ReadSession, jobs: Sequence[Job]) -> Mapping[UUID, int]:
    """For each queued job of `jobs` its place in the queue, or LONGEST_COUNTED_QUEUE if it is no nearer."""
    waiting = [job.id for job in jobs if job.state == JobState.QUEUED]
    if not waiting:
        return {}
    found = {row.id: row.place for row in session.execute(places(waiting))}
    return {job_id: found.get(job_id, LONGEST_COUNTED_QUEUE) for job_id in waiting}
