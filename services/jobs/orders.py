"""What a running job's worker looks for between the renewals of its lease."""

from datetime import datetime

from sqlalchemy import Select, select

from services.db.models import Job
from services.db.sessions import ReadSession, WriteSession
from services.errors import LeaseLostError
from services.jobs.attempts import Fence


def cancel_requested(session: ReadSession, fence: Fence) -> bool:
    """Whether the user wants the job to end.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    return _look(session, select(Job.cancel_requested_at).where(*fence.holds()), fence)


def lock_and_look(session: WriteSession, fence: Fence) -> bool:
    """Whether the user wants the job to end; the answer holds until the transaction ends.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    return _look(session, select(Job.cancel_requested_at).where(*fence.holds()).with_for_update(), fence)


def _look(session: ReadSession, query: Select[datetime | None], fence: Fence) -> bool:
    row = session.execute(query).one_or_none()
    if row is None:
        raise LeaseLostError(f"attempt {fence.attempt} of job {fence.job_id} no longer holds its lease")
    return row.cancel_requested_at is not None
