"""Ends of attempts that say nothing about the job."""

from uuid import UUID

from sqlalchemy import func, select

from services.db.models import JobEvent
from services.db.sessions import ReadSession
from services.jobs.states import Transition

# The database was away for so long that no worker could keep its lease.
DATABASE_LOST = "database_unavailable"
# The worker was told to end, and gave its job back.
GIVEN_BACK = "worker_shutdown"
EXCUSED_CAUSES = frozenset({DATABASE_LOST, GIVEN_BACK})
# A job that brings its workers down looks, from here, like workers that are told to end: it must not go on
# for ever. A long job outlives this many deployments.
MOST_EXCUSED = 20


def excused_attempts(session: ReadSession, job_id: UUID) -> int:
    """How many of the job's attempts ended through no fault of its own."""
    query = select(func.count()).where(
        JobEvent.job_id == job_id,
        JobEvent.type == Transition.REQUEUED,
        JobEvent.payload["cause"].astext.in_(EXCUSED_CAUSES),
    )
    return session.scalars(query).one()


def may_be_excused(session: ReadSession, job_id: UUID) -> bool:
    """Whether one more attempt may end without counting."""
    return excused_attempts(session, job_id) < MOST_EXCUSED
