"""Deletes the objects that nobody can reach any more."""

from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from services.artifacts.manifest import attempt_prefix, job_prefix
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact, Job
from services.db.sessions import WriteSession
from services.jobs.rows import seconds

BATCH = 20


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
    """Of jobs that ended a while ago, only the artifact's objects are left; returns how many went.

    Raises:
        StorageUnavailableError: the store does not answer.
    """
    query = (
        select(Job)
        .options(joinedload(Job.artifact))
        .where(Job.finished_at < func.now() - seconds(grace_seconds), Job.objects_swept_at.is_(None))
        .order_by(Job.finished_at)
        .limit(BATCH)
    )
    jobs = session.scalars(query).all()
    gone = 0
    for job in jobs:
        keep = None if job.artifact is None else job.artifact.prefix
        gone += _delete_below(store, job_prefix(job.id), keep=keep)
        job.objects_swept_at = func.now()
    session.flush()
    return gone


def delete_expired(session: WriteSession, store: ArtifactStore) -> int:
    """The objects of artifacts past their time are gone; returns how many.

    Raises:
        StorageUnavailableError: the store does not answer.
    """
    query = (
        select(Artifact)
        .where(Artifact.expires_at < func.now(), Artifact.objects_deleted_at.is_(None))
        .order_by(Artifact.expires_at)
        .limit(BATCH)
    )
    gone = 0
    for artifact in session.scalars(query).all():
        gone += _delete_below(store, artifact.prefix)
        artifact.objects_deleted_at = func.now()
    session.flush()
    return gone
