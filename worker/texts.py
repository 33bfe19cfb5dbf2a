"""Brings the user's own texts to where the job's process may read them."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from ghosted_core.errors import DataError, DataNotFoundError
from ghosted_core.spec import JobSpec, UploadText
from ghosted_core.wheels import file_sha256
from services.artifacts.storage import ArtifactStore
from services.db.models import Upload
from services.db.sessions import Database
from services.uploads.references import named_uploads
from services.uploads.service import object_key

ADVICE = "Upload the text again and submit with its new id."


@dataclass(frozen=True)
class TextShelf:
    """Where uploads are known and where they lie."""

    database: Database
    store: ArtifactStore


def fetch_uploads(spec: JobSpec, shelf: TextShelf, folder: Path) -> dict[UUID, Path]:
    """The files of all uploads that `spec` names, checked, below `folder`.

    Raises:
        DataNotFoundError: one is not kept any more.
        DataError: one is not what it was when the job was submitted.
        StorageUnavailableError: the store does not answer.
    """
    named = named_uploads(spec)
    if named:
        folder.mkdir(mode=0o700, exist_ok=True)
    return {one.id: _fetch(one, shelf, folder) for one in named}


def _fetch(named: UploadText, shelf: TextShelf, folder: Path) -> Path:
    with shelf.database.read() as session:
        upload = session.get(Upload, named.id)
        key = None if upload is None else object_key(upload)
    if key is None:
        raise DataNotFoundError(f"The upload {named.id} is not kept any more.", advice=ADVICE)
    # Named by the service's own ids: nothing that a user wrote becomes a path.
    path = folder / f"{named.id}{Path(key).suffix}"
    shelf.store.download(key, path)
    if file_sha256(path) != named.sha256:
        # Its link works for a while, so its owner can send other bytes after they were checked.
        raise DataError(f"The upload {named.id} was changed after it was completed.", advice=ADVICE)
    return path
