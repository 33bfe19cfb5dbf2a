"""How a worker comes to its job."""

from uuid import UUID, uuid4

from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.attempts import Claimed
from worker.config import WorkerSettings
from worker.patience import patiently


def claim(database: Database, settings: WorkerSettings, job_id: UUID, *, worker: str) -> Claimed | None:
    """The job is this worker's; None if it is not to be had.

    Raises:
        DatabaseUnavailableError: the database did not come back in time; the wake-up will be sent again.
    """
    # Known before the first try: if the answer to a commit is lost, the next try finds the job by it.
    token = uuid4()
    lease_seconds = settings.lease_seconds

    def once() -> Claimed | None:
        with database.write() as session:
            return attempts.claim(session, job_id, lease_seconds=lease_seconds, worker=worker, token=token)

    return patiently(once, seconds=lease_seconds)
