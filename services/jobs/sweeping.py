"""Repairs what was lost on the way: jobs whose worker is gone, wake-ups that nobody followed."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select, update

from services.db.models import Job, OutboxMessage
from services.db.sessions import WriteSession
from services.errors import WorkerLostError
from services.jobs.attempts import Fence, end_lost_attempt
from services.jobs.failures import RetryPolicy, failure_of
from services.jobs.rows import seconds
from services.jobs.states import JobState

# A worker renews within these once a database that was away is back. The clock of the start does not
# begin anew when a server repairs itself after a crash, but that takes a moment only.
RECONNECT_SECONDS = 10
# Each further sending of the same wake-up waits twice as long, up to this many doublings: a
# long queue must not fill the broker with copies.
MOST_DOUBLINGS = 6


@dataclass(frozen=True)
class Ended:
    """What became of a job whose lease ran out."""

    job_id: UUID
    attempt: int
    state: JobState


def end_expired_attempts(session: WriteSession, policy: RetryPolicy, *, limit: int = 100) -> list[Ended]:
    """At most `limit` running jobs whose lease ran out wait again, or have failed or are cancelled."""
    query = (
        select(Job)
        .where(Job.state == JobState.RUNNING, Job.lease_expires_at < func.now())
        .order_by(Job.lease_expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return [_end(session, job, policy) for job in session.scalars(query).all()]


def end_unheard_cancellations(
    session: WriteSession,
    policy: RetryPolicy,
    *,
    lease_seconds: float,
    silent_seconds: float,
    limit: int = 100,
) -> list[Ended]:
    """At most `limit` running jobs that are to be cancelled have ended: their workers say nothing.

    A worker that renewed leases of `lease_seconds` has been silent for `silent_seconds`. The user does
    not wait for the lease to run out; if the worker is only slow, the fence keeps out what it says late.
    """
    silent = Job.lease_expires_at < func.now() + seconds(lease_seconds - silent_seconds)
    query = (
        select(Job)
        .where(Job.state == JobState.RUNNING, Job.cancel_requested_at.is_not(None), silent)
        .order_by(Job.lease_expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return [_end(session, job, policy) for job in session.scalars(query).all()]


def _end(session: WriteSession, job: Job, policy: RetryPolicy) -> Ended:
    if job.lease_token is None:
        raise WorkerLostError(f"job {job.id} runs without a lease")
    fence = Fence(job.id, job.attempt, job.lease_token)
    lost = WorkerLostError(f"attempt {job.attempt} lost its worker '{job.worker}' and was the last allowed")
    failure = failure_of(lost, stage=job.stage)
    excused = _ran_out_during_an_absence(session, job)
    state = end_lost_attempt(session, fence, failure, policy, excused=excused)
    return Ended(fence.job_id, fence.attempt, state)


def _ran_out_during_an_absence(session: WriteSession, job: Job) -> bool:
    """Whether the database went away while the worker was there, and came back too late for its lease."""
    back = func.pg_postmaster_start_time()
    too_late = Job.lease_expires_at < back + seconds(RECONNECT_SECONDS)
    query = select(Job.id).where(Job.id == job.id, Job.last_seen_at < back, too_late)
    return session.scalars(query).one_or_none() is not None


def republish_unclaimed(session: WriteSession, *, after_seconds: float) -> Sequence[UUID]:
    """Wake-ups of queued jobs that were sent but not followed for a while are unsent again."""
    doublings = func.least(OutboxMessage.sends - 1, MOST_DOUBLINGS)
    patience = seconds(after_seconds * func.power(2, doublings))
    statement = (
        update(OutboxMessage)
        .where(
            OutboxMessage.sent_at < func.now() - patience,
            OutboxMessage.job_id.in_(select(Job.id).where(Job.state == JobState.QUEUED)),
        )
        .values(sent_at=None)
        .returning(OutboxMessage.job_id)
        .execution_options(synchronize_session=False)
    )
    return session.scalars(statement).all()
