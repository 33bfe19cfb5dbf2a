"""What becomes of an upload: begun, completed, deleted."""

from datetime import timedelta
from uuid import UUID

from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.models import Upload
from services.db.sessions import WriteSession
from services.errors import InvalidRequestError, UploadInUseError, UploadRefusedError
from services.toolbox import Toolbox
from services.uploads import repository
from services.uploads.checking import CheckedText, TextFormat, check_text

# How long after its link an upload may still be completed.
GRACE = timedelta(hours=1)


def upload_prefix(upload_id: UUID) -> str:
    """Where the object of an upload lies; made of its id alone."""
    return f"uploads/{upload_id}/"


def object_key(upload: Upload) -> str:
    """The key of the upload's object."""
    return f"{upload_prefix(upload.id)}text.{TextFormat(upload.format).value}"


def begin(
    session: WriteSession, settings: Settings, owner_id: UUID | None, kind: TextFormat, size_bytes: int
) -> Upload:
    """An upload to which `size_bytes` bytes can be sent.

    Raises:
        InvalidRequestError: it is longer than allowed.
        TooManyUploadsError: this key keeps as many as it may.
    """
    if size_bytes > settings.upload_max_bytes:
        raise InvalidRequestError(
            f"{size_bytes} bytes are more than {settings.upload_max_bytes}", field="size_bytes"
        )
    repository.check_room(session, owner_id, settings.uploads_per_key)
    lasts = timedelta(seconds=settings.link_seconds) + GRACE
    return repository.add(session, owner_id, kind, size_bytes, lasts=lasts)


def complete(tools: Toolbox, owner_id: UUID | None, upload_id: UUID) -> Upload:
    """The upload has arrived, is text of its kind, and jobs may name it. Asking twice is fine.

    Raises:
        UploadNotFoundError: there is none of this key.
        UploadRefusedError: nothing arrived, or not what was announced.
    """
    with tools.database.read() as session:
        upload = repository.get(session, owner_id, upload_id)
    if upload.completed_at is not None:
        return upload
    # No transaction is open while the whole object is read.
    found = _checked(upload, tools)
    with tools.database.write() as session:
        upload = repository.get(session, owner_id, upload_id, lock=True)
        if upload.completed_at is None:
            repository.complete(session, upload, found, lasts=timedelta(days=tools.settings.upload_days))
        return upload


def _checked(upload: Upload, tools: Toolbox) -> CheckedText:
    key = object_key(upload)
    arrived = tools.store.size(key)
    if arrived != upload.size_bytes:
        raise UploadRefusedError(
            f"{arrived or 0} bytes arrived, {upload.size_bytes} were announced", field="upload"
        )
    return check_text(
        tools.store.read(key),
        TextFormat(upload.format),
        max_line_bytes=tools.settings.upload_max_line_bytes,
    )


def delete(session: WriteSession, store: ArtifactStore, owner_id: UUID | None, upload_id: UUID) -> None:
    """The upload is gone for everybody, and no object of it is left.

    Its link may work for a while; the row stays as long, for the sweeper to delete what comes late.

    Raises:
        UploadNotFoundError: there is none of this key.
        UploadInUseError: a job that waits or runs names it.
        StorageUnavailableError: the store does not answer; the upload is still there.
    """
    upload = repository.get(session, owner_id, upload_id, lock=True)
    if repository.in_use(session, upload):
        raise UploadInUseError(f"a job that waits or runs names the upload {upload_id}")
    store.delete_prefix(upload_prefix(upload_id))
    repository.end(session, upload)
