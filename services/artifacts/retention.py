"""Deletes the objects that nobody can reach any more."""

from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from services.artifacts.manifest import job_prefix
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact, Job
from services.db.sessions import WriteSession
from services.jobs.rows import seconds

BATCH = 20


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
        store.abort_uploads(job_prefix(job.id))
        gone += store.delete_prefix(job_prefix(job.id), keep=keep)
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
        gone += store.delete_prefix(artifact.prefix)
        artifact.objects_deleted_at = func.now()
    session.flush()
    return gone
