"""What a running job's worker looks for between the renewals of its lease."""

from sqlalchemy import select

from services.db.models import Job
from services.db.sessions import ReadSession
from services.errors import LeaseLostError
from services.jobs.attempts import Fence


def cancel_requested(session: ReadSession, fence: Fence) -> bool:
    """Whether the user wants the job to end.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    row = session.execute(select(Job.cancel_requested_at).where(*fence.holds())).one_or_none()
    if row is None:
        raise LeaseLostError(f"attempt {fence.attempt} of job {fence.job_id} no longer holds its lease")
    return row.cancel_requested_at is not None
