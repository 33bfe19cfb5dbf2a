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
from services.artifacts.storage import ArtifactStore

ROOT = "stages/"
SHARED = "shared"
# Where authentication is off, jobs belong to whoever can reach the service.
UNOWNED = "unowned"
ENTRY = "entry"


def stages_prefix(spec: JobSpec, owner_id: UUID | None, *, private: bool = False) -> str:
    """Where entries of jobs like this one lie; ends in a slash.

    Shared by all owners where model and text are what anyone can name and fetch. `private` says that
    they are not for a reason that the spec does not show, such as a token of the owner's.
    """
    public = isinstance(spec.model, CatalogModel | HubModel) and isinstance(
        spec.calibration.dataset, CatalogText
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
    """The entries below one prefix."""

    store: ArtifactStore
    prefix: str

    def size_bytes(self, key: str) -> int | None:
        """The length of the entry under `key`, None if there is none.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        sizes = {found.key: found.size_bytes for found in self.store.list_objects(f"{self.prefix}{key}/")}
        return sizes.get(self._object(key))

    def download(self, key: str, path: Path) -> None:
        """The entry's bytes lie in the file `path`.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such entry.
        """
        self.store.download(self._object(key), path)

    def upload(self, path: Path, key: str) -> None:
        """The file's bytes are the entry under `key`.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        self.store.upload(path, self._object(key))

    def _object(self, key: str) -> str:
        return f"{self.prefix}{key}/{ENTRY}"


def sweep_stages(store: ArtifactStore, older_than_seconds: float) -> int:
    """No entry is older than that, and no unfinished upload is left of one; returns how many entries went.

    Age counts from when an entry was written, by the store's clock.

    Raises:
        StorageUnavailableError: the store does not answer or refuses.
    """
    limit = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    old = [found.key for found in store.list_objects(ROOT) if found.modified_at < limit]
    store.delete_objects(old)
    return len(old)
