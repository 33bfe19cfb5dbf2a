"""From a folder to the object store and back, with every byte accounted for."""

import hashlib
import json
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ghosted_core.errors import CheckpointError
from services.artifacts.manifest import Manifest, ManifestFile
from services.artifacts.storage import ArtifactStore
from services.artifacts.transfers import Carrier, OnBytes
from worker.errors import UploadChangedError

CHECKPOINT_MANIFEST = "ghosted.json"
LONGEST_MANIFEST_BYTES = 64 << 20
READ_BYTES = 1 << 20
# What of the checkpoint's own manifest the API shows without a download.
SUMMARY_KEYS = (
    "source",
    "plan",
    "finetune",
    "evaluation",
    "corpora",
    "metrics",
    "tasks_complete",
    "gate",
    "generations",
    "parameters",
    "dtype",
    "versions",
    "spec_digest",
)


def describe(folder: Path, check: Callable[[], None]) -> Manifest:
    """All files of the finished checkpoint in `folder`, and what the job made.

    `check` is called between blocks of a file, which may be long, and ends the work by raising.

    Raises:
        CheckpointError: there is something in it that no checkpoint holds.
    """
    try:
        files = tuple(_entry(folder, path, check) for path in _walk(folder))
        return Manifest(files=files, summary=_summary(folder / CHECKPOINT_MANIFEST))
    except (ValidationError, OSError) as error:
        raise CheckpointError("the job's process left no complete checkpoint") from error


def upload(
    carrier: Carrier, prefix: str, folder: Path, files: Sequence[ManifestFile], on_bytes: OnBytes
) -> None:
    """Every file lies in the store, and nothing else below `prefix`, not even an unfinished upload.

    Raises:
        StorageUnavailableError: the store does not answer or refuses.
        UploadChangedError: the store lists other lengths, or other files.
    """
    for file in files:
        carrier.send(folder / file.path, prefix + file.path, on_bytes)
    carrier.persist("tidying", lambda: carrier.store.abort_uploads(prefix))
    stored = carrier.persist("listing", lambda: _listed(carrier.store, prefix))
    if stored != {prefix + file.path: file.size_bytes for file in files}:
        raise UploadChangedError("the object store lists other files than were sent")


def _listed(store: ArtifactStore, prefix: str) -> dict[str, int]:
    return {found.key: found.size_bytes for found in store.list_objects(prefix)}


def read_back(
    carrier: Carrier, prefix: str, folder: Path, files: Sequence[ManifestFile], on_bytes: OnBytes
) -> None:
    """The stored bytes lie in `folder`, and have the hashes of the files that were sent.

    Raises:
        StorageUnavailableError: the store does not answer or refuses.
        UploadChangedError: it gave back other bytes.
    """
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        carrier.fetch(prefix + file.path, path, file.size_bytes, on_bytes)
        if _entry(folder, path, _go_on) != file:
            raise UploadChangedError(f"'{file.path}' came back from the object store changed")


def _go_on() -> None:
    """Do not stop: the process ends with its supervisor's patience."""


def _walk(folder: Path) -> Iterator[Path]:
    """All files below `folder`, in order.

    Raises:
        CheckpointError: a link, or something else that is neither file nor folder.
    """
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            yield path
        elif not stat.S_ISDIR(mode):
            raise CheckpointError(f"'{path.name}' in the checkpoint is neither a file nor a folder")


def _entry(folder: Path, path: Path, check: Callable[[], None]) -> ManifestFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
            check()
        size_bytes = file.tell()
    return ManifestFile(
        path=path.relative_to(folder).as_posix(), size_bytes=size_bytes, sha256=digest.hexdigest()
    )


def _summary(manifest: Path) -> dict[str, Any]:
    if manifest.stat().st_size > LONGEST_MANIFEST_BYTES:
        raise CheckpointError(f"{manifest.name} is too long to be one")
    try:
        content = json.loads(manifest.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{manifest.name} is not JSON") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{manifest.name} is not an object")
    return {key: content[key] for key in SUMMARY_KEYS if key in content}
