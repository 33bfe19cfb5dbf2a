"""Repairs what the fast path lost. One process at a time: the leader holds a lock of the database."""

import logging
from dataclasses import dataclass

from sqlalchemy import func, select

from services.artifacts import retention
from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.sessions import Database, WriteSession
from services.jobs import sweeping
from services.jobs.failures import RetryPolicy

# Any number serves, as long as every sweeper takes the same.
LEADER_LOCK = 0x73776570  # "swep"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """How much one sweep repaired."""

    attempts_ended: int = 0
    wake_ups_unsent: int = 0


def sweep_jobs(session: WriteSession, settings: Settings) -> Sweep:
    """Lost jobs wait again or have ended, lost wake-ups are to be sent again; nothing, if another leads."""
    if not _leads(session):
        return Sweep()
    policy = RetryPolicy(settings.max_attempts, settings.retry_delay_seconds)
    ended = sweeping.end_expired_attempts(session, policy)
    for one in ended:
        logger.warning("attempt %d of job %s lost its worker; now %s", one.attempt, one.job_id, one.state)
    unsent = sweeping.republish_unclaimed(session, after_seconds=settings.republish_seconds)
    return Sweep(len(ended), len(unsent))


def sweep_objects(database: Database, store: ArtifactStore, settings: Settings) -> int:
    """Objects of dead attempts and of expired artifacts are deleted; returns how many.

    Raises:
        StorageUnavailableError: the store does not answer; the rest waits for the next sweep.
    """
    # An attempt that lost its lease may upload a little longer before it learns so.
    grace = 4.0 * settings.lease_seconds
    with database.write() as session:
        if not _leads(session):
            return 0
        return retention.delete_dead(session, store, grace_seconds=grace) + retention.delete_expired(
            session, store
        )


def _leads(session: WriteSession) -> bool:
    # A transaction's lock: whatever becomes of this process, the next sweep can be another's.
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(LEADER_LOCK))))
