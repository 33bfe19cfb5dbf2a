"""Deletes uploads past their time. For the sweeper."""

from services.artifacts.storage import ArtifactStore
from services.db.sessions import WriteSession
from services.uploads import repository
from services.uploads.service import upload_prefix

BATCH = 20


def expire_uploads(session: WriteSession, store: ArtifactStore, *, limit: int = BATCH) -> int:
    """At most `limit` uploads past their time are gone, row and object; returns how many.

    Those that a waiting or running job names stay until it has ended; uploads that were never
    completed go too.

    Raises:
        StorageUnavailableError: the store does not answer; nothing is forgotten.
    """
    gone = repository.expired(session, limit=limit)
    for upload in gone:
        store.delete_prefix(upload_prefix(upload.id))
        repository.remove(session, upload)
    return len(gone)
