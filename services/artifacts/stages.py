"""What stages found, in the object store: stages/{scope}/{subject}/{key}/entry.

The scope says who may start from it. The subject, a digest of the model and text that a job names,
keeps a job's process within what it was asked to look at, whatever key it invents: a hostile model can
at most mislead jobs on that same model.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from ghosted_core.spec import CatalogModel, CatalogText, HubModel, JobSpec
from services.artifacts.connection import HASTY
from services.artifacts.storage import ArtifactStore, open_store
from services.artifacts.transfers import Carrier, OnBytes
from services.config import StoreSettings
from services.errors import StorageUnavailableError

ROOT = "stages/"
SHARED = "shared"
# Where authentication is off, jobs belong to whoever can reach the service.
UNOWNED = "unowned"
ENTRY = "entry"
# Between two parts a transfer can be ended.
PART_BYTES = 8 << 20


def stages_prefix(spec: JobSpec, owner_id: UUID | None, *, private: bool = False) -> str:
    """Where entries of jobs like this one lie; ends in a slash.

    Shared by all owners where model and text are what anyone can name and fetch. `private` says that
    they are not for a reason that the spec does not show, such as a token of the owner's.
    """
    public = isinstance(spec.model, CatalogModel | HubModel) and all(
        isinstance(text, CatalogText) for text in (spec.calibration.dataset, spec.finetune_text)
    )
    owner = UNOWNED if owner_id is None else str(owner_id)
    scope = SHARED if public and not private else owner
    return f"{ROOT}{scope}/{_subject(spec)}/"


def _subject(spec: JobSpec) -> str:
    named = [spec.model.model_dump(mode="json"), spec.calibration.dataset.model_dump(mode="json")]
    text = json.dumps(named, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class StageStore:
    """The entries below one prefix, carried by `carrier`; `on_bytes` is told of each part that arrived."""

    carrier: Carrier
    prefix: str

    def size_bytes(self, key: str) -> int | None:
        """The length of the entry under `key`, None if there is none.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        listed = self.carrier.store.list_objects(self._folder(key))
        return {found.key: found.size_bytes for found in listed}.get(self._object(key))

    def fetch(self, key: str, path: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        """The entry's bytes lie in the file `path`.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such entry.
        """
        self.carrier.fetch(self._object(key), path, size_bytes, on_bytes)

    def send(self, path: Path, key: str, on_bytes: OnBytes) -> None:
        """The file's bytes are the entry under `key`; otherwise nothing is left of them.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        try:
            self.carrier.send(path, self._object(key), on_bytes)
        except BaseException:
            self.carrier.store.abort_uploads(self._folder(key))
            raise

    def _folder(self, key: str) -> str:
        return f"{self.prefix}{key}/"

    def _object(self, key: str) -> str:
        return self._folder(key) + ENTRY


def open_stages(settings: StoreSettings, prefix: str) -> StageStore:
    """The entries below `prefix`, through a client that gives up soon: work can go on without them."""
    return StageStore(Carrier(open_store(settings, HASTY), PART_BYTES, patience_seconds=0), prefix)


def read_small(store: ArtifactStore, prefix: str, key: str, max_bytes: int) -> bytes | None:
    """The entry under `key` below `prefix`; None if it is not there, or longer, or the store is slow."""
    content = b""
    try:
        for piece in store.read(f"{prefix}{key}/{ENTRY}"):
            content += piece
            if len(content) > max_bytes:
                return None
    except StorageUnavailableError:
        return None
    return content


def sweep_stages(store: ArtifactStore, older_than_seconds: float) -> int:
    """No entry is older than that, nor an unfinished upload of one; returns how many entries went.

    Age counts from when an entry was written, by the store's clock.

    Raises:
        StorageUnavailableError: the store does not answer or refuses.
    """
    limit = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    store.abort_uploads(ROOT, begun_before=limit)
    old = [found.key for found in store.list_objects(ROOT) if found.modified_at < limit]
    for key in old:
        # By the folder: in a bucket that keeps versions, all of them go.
        store.delete_prefix(key.removesuffix(ENTRY))
    return len(old)
