"""Deletes the objects that nobody can reach any more."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from services.artifacts.manifest import attempt_prefix, job_prefix
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact, Job
from services.db.sessions import WriteSession
from services.errors import StorageUnavailableError
from services.jobs.rows import seconds

Kept = TypeVar("Kept", Job, Artifact)

BATCH = 20
# What was deleted is noted at the end of a round: a slow store must let it end.
MOST_SECONDS = 10.0
# A store that fails so often in a round is not asked again in it.
MOST_FAILURES = 3

logger = logging.getLogger(__name__)


def delete_objects_of(store: ArtifactStore, job_id: UUID) -> int:
    """Nothing of the job is in the store: no object in any version, no unfinished upload; how many went.

    Raises:
        StorageUnavailableError: the store does not answer; some may be gone.
    """
    return _delete_below(store, job_prefix(job_id))


def delete_attempts(store: ArtifactStore, job_id: UUID, *, up_to: int) -> int:
    """Nothing of the attempts 1 to `up_to` is in the store; returns how many objects went.

    A worker that was left behind may call this for its own attempt: later ones are not touched.

    Raises:
        StorageUnavailableError: the store does not answer; some may be gone.
    """
    return sum(_delete_below(store, attempt_prefix(job_id, number)) for number in range(1, up_to + 1))


def _delete_below(store: ArtifactStore, prefix: str, *, keep: str | None = None) -> int:
    # In this order: an aborted upload cannot become an object any more.
    store.abort_uploads(prefix)
    return store.delete_prefix(prefix, keep=keep)


def delete_dead(session: WriteSession, store: ArtifactStore, *, grace_seconds: float) -> int:
    """Of some jobs that ended a while ago, only the artifact's objects are left; returns how many went.

    What the store does not delete is logged and waits for a later round.
    """
    query = (
        select(Job)
        .options(joinedload(Job.artifact))
        .where(Job.finished_at < func.now() - seconds(grace_seconds), Job.objects_swept_at.is_(None))
        .order_by(func.random())
        .limit(BATCH)
    )

    def delete(job: Job) -> int:
        keep = None if job.artifact is None else job.artifact.prefix
        return _delete_below(store, job_prefix(job.id), keep=keep)

    done = _for_a_while(session, session.scalars(query).all(), delete)
    for job, _ in done:
        job.objects_swept_at = func.now()
    session.flush()
    return sum(gone for _, gone in done)


def delete_expired(session: WriteSession, store: ArtifactStore) -> int:
    """The objects of some artifacts past their time are gone; returns how many.

    What the store does not delete is logged and waits for a later round.
    """
    query = (
        select(Artifact)
        .where(Artifact.expires_at < func.now(), Artifact.objects_deleted_at.is_(None))
        .order_by(func.random())
        .limit(BATCH)
    )
    done = _for_a_while(
        session, session.scalars(query).all(), lambda artifact: _delete_below(store, artifact.prefix)
    )
    for artifact, _ in done:
        artifact.objects_deleted_at = func.now()
    session.flush()
    return sum(gone for _, gone in done)


def _for_a_while(
    session: WriteSession, rows: Sequence[Kept], delete: Callable[[Kept], int]
) -> list[tuple[Kept, int]]:
    """The rows whose objects were deleted, and how many went.

    Rows come in random order: those that the store refuses never keep the others from their turn.
    """
    done: list[tuple[Kept, int]] = []
    failures = 0
    end = time.monotonic() + MOST_SECONDS
    for row in rows:
        try:
            done.append((row, delete(row)))
        except StorageUnavailableError as error:
            failures += 1
            logger.warning("some objects are not deleted and wait for a later sweep: %s", error.message)
        # The database ends a transaction in which nothing is said for long.
        session.execute(select(1))
        # Not before the first: however slow the store is, each round deletes something.
        if failures == MOST_FAILURES or time.monotonic() > end:
            break
    return done
