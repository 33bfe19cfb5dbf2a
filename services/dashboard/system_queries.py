"""The SQL of the system page: a fixed number of queries, each on a partial index of `jobs`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select

from services.db.models import Job
from services.db.sessions import ReadSession
from services.jobs.states import JobState

DAY, WEEK = timedelta(days=1), timedelta(days=7)
# Codes are of a fixed set; whatever should get in, the page stays a page.
MOST_CODES = 100


@dataclass(frozen=True)
class FailureCount:
    """How many jobs failed with a code, in the last 24 hours and in the last 7 days."""

    code: str
    day: int
    week: int


@dataclass(frozen=True)
class Queue:
    """How many jobs wait and run; since when the oldest one waits."""

    queued: int
    running: int
    oldest_queued_at: datetime | None


def queue(session: ReadSession, sees: ColumnElement[bool]) -> Queue:
    """Of the jobs for which `sees` holds."""
    counts = {state: _count(session, sees, state) for state in (JobState.QUEUED, JobState.RUNNING)}
    # Ids sort by time, so the oldest is the first of an index.
    oldest = select(Job.created_at).where(sees, Job.state == JobState.QUEUED).order_by(Job.id).limit(1)
    return Queue(counts[JobState.QUEUED], counts[JobState.RUNNING], session.scalar(oldest))


def _count(session: ReadSession, sees: ColumnElement[bool], state: JobState) -> int:
    query = select(func.count()).select_from(Job).where(sees, Job.state == state)
    return session.scalar(query) or 0


def failures(session: ReadSession, sees: ColumnElement[bool]) -> tuple[FailureCount, ...]:
    """By code, of the jobs for which `sees` holds; the most frequent first."""
    code = Job.failure["code"].astext
    day = func.count().filter(Job.finished_at > func.now() - DAY)
    query = (
        select(code, day, func.count())
        .where(sees, Job.state == JobState.FAILED, Job.finished_at > func.now() - WEEK)
        .group_by(code)
        .order_by(func.count().desc(), code)
        .limit(MOST_CODES)
    )
    return tuple(FailureCount(str(one), in_day, in_week) for one, in_day, in_week in session.execute(query))
