"""Brings the user's own texts to where the job's process may read them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from ghosted_core.errors import DataError, DataNotFoundError
from ghosted_core.spec import JobSpec, UploadText
from ghosted_core.wheels import file_sha256
from services.artifacts.connection import HASTY
from services.artifacts.stages import PART_BYTES
from services.artifacts.storage import open_store
from services.artifacts.transfers import Carrier
from services.db.models import Upload
from services.db.sessions import Database
from services.errors import StorageRefusedError, StorageUnavailableError
from services.uploads.references import named_uploads
from services.uploads.service import object_key
from worker.config import WorkerSettings
from worker.patience import patiently

T = TypeVar("T")

ADVICE = "Upload the text again and submit with its new id."
WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Lying:
    """Where the object of an upload lies, and how long it is."""

    key: str
    size_bytes: int


@dataclass(frozen=True)
class TextShelf:
    """Where uploads are known and where they lie; it outlasts what does not answer for a while.

    `check` raises if the attempt is to stop. It is asked every few seconds, also while the store hangs.
    """

    database: Database
    carrier: Carrier
    database_seconds: float
    store_seconds: float
    check: Callable[[], None]

    @classmethod
    def of(cls, settings: WorkerSettings, database: Database, check: Callable[[], None]) -> "TextShelf":
        """As `settings` say."""
        # Each request gives up soon, and the patience is here: between two of them is a look at `check`.
        carrier = Carrier(open_store(settings, HASTY), PART_BYTES, patience_seconds=0)
        return cls(database, carrier, settings.lease_seconds, settings.s3_patience_seconds, check)

    def find(self, upload_id: UUID) -> Lying | None:
        """What is known of the upload, None if it is not kept any more.

        Raises:
            DatabaseUnavailableError: the database did not come back in time.
        """

        def look() -> Lying | None:
            with self.database.read() as session:
                upload = session.get(Upload, upload_id)
                return None if upload is None else Lying(object_key(upload), upload.size_bytes)

        return patiently(look, seconds=self.database_seconds)

    def size_bytes(self, key: str) -> int | None:
        """The object's length, None if there is none.

        Raises:
            StorageUnavailableError: the store does not answer for too long, or refuses.
        """
        return self._persist(lambda: self.carrier.store.size(key))

    def fetch(self, lying: Lying, path: Path) -> None:
        """The object's bytes lie in the file `path`.

        Raises:
            StorageUnavailableError: the store does not answer for too long, or refuses.
        """
        self._persist(
            lambda: self.carrier.fetch(lying.key, path, lying.size_bytes, lambda _arrived: self.check())
        )

    def _persist(self, action: Callable[[], T]) -> T:
        give_up = time.monotonic() + self.store_seconds
        while True:
            self.check()
            try:
                return action()
            except StorageRefusedError:
                raise
            except StorageUnavailableError:
                if time.monotonic() + WAIT_SECONDS > give_up:
                    raise
            time.sleep(WAIT_SECONDS)


def fetch_uploads(spec: JobSpec, shelf: TextShelf, folder: Path) -> dict[UUID, Path]:
    """The files of all uploads that `spec` names, checked, below `folder`.

    Raises:
        DataNotFoundError: one is not kept any more.
        DataError: one is not what it was when the job was submitted.
        StorageUnavailableError: the store does not answer for too long, or refuses.
        DatabaseUnavailableError: the database did not come back in time.
    """
    named = named_uploads(spec)
    if named:
        folder.mkdir(mode=0o700, exist_ok=True)
    return {one.id: _fetch(one, shelf, folder) for one in named}


def _fetch(named: UploadText, shelf: TextShelf, folder: Path) -> Path:
    lying = shelf.find(named.id)
    arrived = None if lying is None else shelf.size_bytes(lying.key)
    if lying is None or arrived is None:
        raise DataNotFoundError(f"The upload {named.id} is not kept any more.", advice=ADVICE)
    # Named by the service's own ids: nothing that a user wrote becomes a path.
    path = folder / f"{named.id}{Path(lying.key).suffix}"
    if arrived == lying.size_bytes:
        shelf.fetch(lying, path)
    if arrived != lying.size_bytes or file_sha256(path) != named.sha256:
        # Its link works for a while, so its owner can send other bytes after they were checked.
        raise DataError(f"The upload {named.id} was changed after it was completed.", advice=ADVICE)
    return path
