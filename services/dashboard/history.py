"""How long a job has waited and run, over all of its attempts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select

from services.db.models import Job, JobEvent
from services.db.sessions import ReadSession
from services.jobs.states import JobState, Transition

NOTHING = timedelta(0)


@dataclass(frozen=True)
class Turn:
    """The job began to run, or began to wait again."""

    running: bool
    at: datetime


@dataclass(frozen=True)
class Times:
    """Seconds spent waiting and running.

    Of what it does now, `since` is when that would have begun had it been done in one go: the clock
    runs on from there. None once the job has ended.
    """

    queued_seconds: float
    running_seconds: float
    since: datetime | None


def times(session: ReadSession, jobs: Sequence[Job]) -> Mapping[UUID, Times]:
    """For each of `jobs` where its time went."""
    turns = _turns(session, [job.id for job in jobs if _began_again(job)])
    return {job.id: times_of(job, turns.get(job.id) or _first_turn(job)) for job in jobs}


def times_of(job: Job, turns: Sequence[Turn]) -> Times:
    """Where the time of a job with these `turns` went."""
    waited, ran = NOTHING, NOTHING
    running, start = False, job.created_at
    for turn in turns:
        waited, ran = _with(waited, ran, running=running, span=turn.at - start)
        running, start = turn.running, turn.at
    if job.finished_at is None:
        since = start - (ran if running else waited)
        return Times(waited.total_seconds(), ran.total_seconds(), since)
    waited, ran = _with(waited, ran, running=running, span=job.finished_at - start)
    return Times(waited.total_seconds(), ran.total_seconds(), None)


def _with(
    waited: timedelta, ran: timedelta, *, running: bool, span: timedelta
) -> tuple[timedelta, timedelta]:
    span = max(span, NOTHING)
    return (waited, ran + span) if running else (waited + span, ran)


def _began_again(job: Job) -> bool:
    # Of the others the row says everything.
    return job.attempt > 1 or (job.attempt == 1 and job.state == JobState.QUEUED)


def _first_turn(job: Job) -> list[Turn]:
    return [] if job.started_at is None else [Turn(running=True, at=job.started_at)]


def _turns(session: ReadSession, job_ids: Sequence[UUID]) -> Mapping[UUID, list[Turn]]:
    if not job_ids:
        return {}
    moves = (Transition.CLAIMED, Transition.REQUEUED)
    query = (
        select(JobEvent.job_id, JobEvent.type, JobEvent.at)
        .where(JobEvent.job_id.in_(job_ids), JobEvent.type.in_(moves))
        .order_by(JobEvent.job_id, JobEvent.number)
    )
    found: dict[UUID, list[Turn]] = {}
    for job_id, move, at in session.execute(query):
        found.setdefault(job_id, []).append(Turn(running=move == Transition.CLAIMED, at=at))
    return found
