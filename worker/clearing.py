"""Takes back what attempts without a result have uploaded."""

import logging
import threading

from services.artifacts import retention
from services.artifacts.connection import HASTY
from services.artifacts.storage import open_store
from services.errors import UnavailableError
from services.jobs.attempts import Fence
from worker.config import WorkerSettings

# Somebody waits for the job's end: what is not gone by then, the sweeper deletes.
CLEAR_SECONDS = 3.0

logger = logging.getLogger(__name__)


def clear(settings: WorkerSettings, fence: Fence) -> bool:
    """Of this attempt and those before it nothing is in the object store; False if that is not sure.

    Returns after `CLEAR_SECONDS` at the latest, even if the store hangs.
    """
    done = threading.Event()

    def delete() -> None:
        try:
            retention.delete_attempts(open_store(settings, HASTY), fence.job_id, up_to=fence.attempt)
            done.set()
        except UnavailableError as error:
            logger.warning("job %s: its uploads are left to the sweeper: %s", fence.job_id, error)

    # Not waited for longer: it only deletes what no other attempt will ever own.
    thread = threading.Thread(target=delete, name="clear", daemon=True)
    thread.start()
    thread.join(CLEAR_SECONDS)
    return done.is_set()
