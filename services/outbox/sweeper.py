"""Repairs what the fast path lost and deletes what has had its time; one process at a time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from services.artifacts import retention
from services.artifacts.stages import sweep_stages
from services.artifacts.storage import ArtifactStore
from services.auth import logins
from services.chores import Chore
from services.config import Settings
from services.db.sessions import Database, WriteSession
from services.jobs import sweeping
from services.jobs.failures import RetryPolicy
from services.outbox.leadership import Leader
from services.uploads.retention import expire_uploads
from services.workers import repository as workers

DAY_SECONDS = 86400.0
# A worker that missed its beat by this much obeys no cancellation either.
SILENT_BEATS = 1.6
# Of so many sweeps one does what takes long and is in no hurry.
RARELY = 60

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """How much one sweep repaired."""

    attempts_ended: int = 0
    wake_ups_unsent: int = 0


@dataclass(frozen=True)
class Led:
    """Makes chores that only the leader does."""

    leader: Leader
    period_seconds: float

    def __call__(self, name: str, work: Callable[[], object], *, rarely: int = 1) -> Chore:
        """`work` every period, or every so many of them."""
        return Chore(name, self.period_seconds * rarely, lambda: self.leader.leads() and work())


def repairs(database: Database, settings: Settings, leader: Leader) -> tuple[Chore, ...]:
    """What keeps jobs going. It asks the database and nothing else, so nothing else holds it up."""
    led = Led(leader, settings.sweep_seconds)
    return (
        led("sweep of jobs", lambda: _in_transaction(database, settings, sweep_jobs)),
        led("sweep of workers", lambda: _in_transaction(database, settings, sweep_workers)),
        led("sweep of logins", lambda: sweep_logins(database), rarely=RARELY),
    )


def deletions(
    database: Database, store: ArtifactStore, settings: Settings, leader: Leader
) -> tuple[Chore, ...]:
    """What frees the object store, which may be slow."""
    led = Led(leader, settings.sweep_seconds)
    return (
        led("sweep of objects", lambda: sweep_objects(database, store, settings)),
        led("sweep of uploads", lambda: sweep_uploads(database, store)),
        # Looks at every entry there is, for a term of days.
        led("sweep of stages", lambda: sweep_stages(store, settings.stage_days * DAY_SECONDS), rarely=RARELY),
    )


def sweep_jobs(session: WriteSession, settings: Settings) -> Sweep:
    """Lost jobs wait again or have ended, lost wake-ups are to be sent again."""
    policy = RetryPolicy(settings.max_attempts, settings.retry_delay_seconds)
    ended = [
        *sweeping.end_unheard_cancellations(
            session,
            policy,
            lease_seconds=settings.lease_seconds,
            silent_seconds=SILENT_BEATS * settings.heartbeat_seconds,
        ),
        *sweeping.end_expired_attempts(session, policy),
    ]
    for one in ended:
        logger.warning("attempt %d of job %s lost its worker; now %s", one.attempt, one.job_id, one.state)
    unsent = sweeping.republish_unclaimed(session, after_seconds=settings.republish_seconds)
    return Sweep(len(ended), len(unsent))


def sweep_workers(session: WriteSession, settings: Settings) -> int:
    """Workers that have been gone for long are not in the list; returns how many that were."""
    gone = workers.forget_gone(session, after_seconds=settings.worker_keep_seconds)
    for worker in gone:
        logger.warning("worker %s has not been seen for long and is no longer listed", worker)
    return len(gone)


def sweep_logins(database: Database) -> int:
    """Logins past their time are gone; returns how many were."""
    with database.write() as session:
        return logins.forget_ended(session)


def sweep_objects(database: Database, store: ArtifactStore, settings: Settings) -> int:
    """Objects of dead attempts and of expired artifacts are deleted; returns how many.

    What the store refuses, or leaves no time for, waits for the next sweep.
    """
    # An attempt that lost its lease may upload a little longer before it learns so.
    grace = 4.0 * settings.lease_seconds
    with database.write() as session:
        return retention.delete_dead(session, store, grace_seconds=grace) + retention.delete_expired(
            session, store
        )


def sweep_uploads(database: Database, store: ArtifactStore) -> int:
    """Uploads past their time are deleted; returns how many.

    Raises:
        StorageUnavailableError: the store does not answer; the rest waits for the next sweep.
    """
    with database.write() as session:
        return expire_uploads(session, store)


def _in_transaction(
    database: Database, settings: Settings, sweep: Callable[[WriteSession, Settings], object]
) -> None:
    with database.write() as session:
        sweep(session, settings)
