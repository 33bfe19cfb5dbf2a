"""What an attempt that lost its lease has left in the object store."""

import logging

from sqlalchemy.exc import SQLAlchemyError

from services.artifacts.manifest import attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.errors import StorageUnavailableError
from services.jobs.attempts import Fence
from services.jobs.reporting import has_artifact

logger = logging.getLogger(__name__)


def discard(database: Database, store: ArtifactStore, fence: Fence) -> None:
    """No object of the lost attempt is left, as far as that can be had now.

    A worker that was stopped for long may write after the sweeper has been there, and nobody looks
    there again.
    """
    prefix = attempt_prefix(fence.job_id, fence.attempt)
    try:
        with database.read() as session:
            # The lease is also lost by the success whose commit was never confirmed.
            if has_artifact(session, fence):
                return
        store.abort_uploads(prefix)
        gone = store.delete_prefix(prefix)
    except (SQLAlchemyError, StorageUnavailableError) as error:
        logger.warning("job %s: leftovers were not deleted: %s", fence.job_id, type(error).__name__)
        return
    if gone:
        logger.info("job %s: %d late objects of attempt %d deleted", fence.job_id, gone, fence.attempt)
