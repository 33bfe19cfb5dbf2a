"""What a worker that lost touch with the database looks up when it is back."""

from sqlalchemy import func, select

from services.db.models import Artifact, Job, JobEvent
from services.db.sessions import ReadSession, WriteSession
from services.jobs.attempts import Fence

# The events that only the worker of the attempt adds.
REPORTED = ("stage_started", "stage_finished", "layers_chosen", "metric", "log")


def number_after(session: WriteSession, fence: Fence, number: int) -> int | None:
    """The number of the latest event, after `number`, that this attempt's worker reported."""
    # Under the lock, which a transaction that the worker has lost sight of may still hold.
    session.execute(select(Job.id).where(Job.id == fence.job_id).with_for_update())
    query = select(func.max(JobEvent.number)).where(
        JobEvent.job_id == fence.job_id,
        JobEvent.number > number,
        JobEvent.attempt == fence.attempt,
        JobEvent.type.in_(REPORTED),
    )
    return session.scalars(query).one()


def has_artifact(session: ReadSession, fence: Fence) -> bool:
    """Whether it was this attempt that brought the job's result."""
    query = select(Artifact.job_id).where(Artifact.job_id == fence.job_id, Artifact.attempt == fence.attempt)
    return session.scalars(query).one_or_none() is not None
