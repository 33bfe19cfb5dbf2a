"""Whether a key may submit one more job now."""

from uuid import UUID

from sqlalchemy import func, select

from services.db.models import Job
from services.db.sessions import WriteSession
from services.errors import TooManyJobsError
from services.jobs.states import JobState
from services.toolbox import Toolbox

# Any number serves, as long as every process of the API takes the same.
LOCK_SEED = 0x61646D69  # "admi"
# A place in the queue is free when a job begins or ends; when that is, nobody knows.
RETRY_AFTER_SECONDS = 30


def admit(session: WriteSession, tools: Toolbox, owner_id: UUID | None) -> None:
    """Return if one more job of this key may be added in this transaction.

    Call it right before the job is added: a job that is then refused for another reason counts.

    Raises:
        TooManyJobsError: as many as allowed wait already, or were submitted within a day.
    """
    _check_queue(session, owner_id, tools.settings.queued_jobs_per_key)
    tools.limiter.count_job(str(owner_id))


def _check_queue(session: WriteSession, owner_id: UUID | None, most: int) -> None:
    if not most:
        return
    # Two submissions at once would both find the last place free.
    lock = func.pg_advisory_xact_lock(func.hashtextextended(str(owner_id), LOCK_SEED))
    session.execute(select(lock))
    # With None, SQLAlchemy says IS NULL.
    waiting = select(Job.id).where(Job.owner_id == owner_id, Job.state == JobState.QUEUED)
    count = session.scalar(select(func.count()).select_from(waiting.limit(most).subquery())) or 0
    if count >= most:
        raise TooManyJobsError(
            f"{most} jobs of this key wait already", retry_after_seconds=RETRY_AFTER_SECONDS
        )
