"""The cache of models and texts, which would otherwise grow for ever.

An entry is what is fetched and deleted as one: the folder of a Hub repository, or of a wheel.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ghosted_core.catalog import Catalog, HubFile, ModelEntry, WheelMember
from ghosted_core.errors import GhostedError
from ghosted_core.spec import CatalogModel, CatalogText, HubModel, JobSpec

HUB = "hub"
WHEELS = "wheels"
LOCK = ".tidying"
# An entry that is being deleted: the name says so to whoever finds it after a crash.
DELETING = ".deleting-"
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """How long entries are kept that nobody uses, how many bytes are kept in all (None: any number).

    Neither touches what was used within `in_use_seconds`: a job may be reading it.
    """

    keep_seconds: float
    keep_bytes: int | None
    in_use_seconds: float


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: its size on disk, and when it was last used, in seconds since 1970."""

    path: Path
    size_bytes: int
    used_at: float


def mark_used(cache: Path, spec: JobSpec, catalog: Catalog) -> None:
    """What is there of the model and texts of `spec` counts as used now."""
    for path in _entries_of(cache, spec, catalog):
        try:
            # Not left to the file system, which may not keep times of access.
            os.utime(path)
        except OSError:
            continue  # Not fetched yet.


def tidy(cache: Path, limits: Limits) -> int:
    """What has had its time, then the longest unused above the size, is gone; returns the bytes freed.

    One process of the machine at a time does it; another one finds nothing to do.
    """
    if not cache.is_dir():
        return 0
    descriptor = os.open(cache / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left_over = [path for folder in (HUB, WHEELS) for path in _children(cache / folder, DELETING)]
        for left in left_over:
            shutil.rmtree(left, ignore_errors=True)
        doomed = _doomed(list(_entries(cache)), limits, time.time())
        for entry in doomed:
            _delete(entry)
        return sum(entry.size_bytes for entry in doomed)
    except BlockingIOError:
        return 0
    finally:
        os.close(descriptor)


def _doomed(entries: Sequence[Entry], limits: Limits, now: float) -> list[Entry]:
    idle = sorted(
        (entry for entry in entries if now - entry.used_at > limits.in_use_seconds),
        key=lambda entry: entry.used_at,
    )
    old = [entry for entry in idle if now - entry.used_at > limits.keep_seconds]
    kept = sum(entry.size_bytes for entry in entries) - sum(entry.size_bytes for entry in old)
    doomed = list(old)
    for entry in idle[len(old) :]:
        if limits.keep_bytes is None or kept <= limits.keep_bytes:
            break
        doomed.append(entry)
        kept -= entry.size_bytes
    return doomed


def _delete(entry: Entry) -> None:
    # Renamed first: nobody finds an entry of which a part is gone.
    going = entry.path.with_name(f"{DELETING}{entry.path.name}")
    try:
        if entry.path.stat().st_mtime > entry.used_at:
            return  # A job has come for it since it was measured.
        entry.path.rename(going)
    except OSError:
        return
    shutil.rmtree(going, ignore_errors=True)


def _entries(cache: Path) -> Iterator[Entry]:
    for folder in (*_children(cache / HUB, "models--", "datasets--"), *_children(cache / WHEELS)):
        if not folder.name.startswith(DELETING):
            yield _measure(folder)


def _children(folder: Path, *prefixes: str) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return [path for path in found if not prefixes or path.name.startswith(prefixes)]


def _measure(folder: Path) -> Entry:
    size, used = 0, _lstat(folder, 0.0)[1]
    for place, _, names in os.walk(folder):
        for name in names:
            length, changed = _lstat(Path(place) / name, used)
            size, used = size + length, max(used, changed)
    return Entry(folder, size, used)


def _lstat(path: Path, otherwise: float) -> tuple[int, float]:
    """Bytes on disk and time of the latest change."""
    try:
        found = path.lstat()
    except OSError:
        return 0, otherwise  # Gone meanwhile.
    return found.st_blocks * 512, found.st_mtime


def _entries_of(cache: Path, spec: JobSpec, catalog: Catalog) -> Iterator[Path]:
    if isinstance(spec.model, HubModel):
        yield cache / HUB / _repository("models", spec.model.id)
    texts = [spec.calibration.dataset, spec.finetune_text]
    if spec.evaluation is not None:
        own = spec.evaluation.dataset
        texts += [*([own] if own else ()), *(corpus.text for corpus in spec.evaluation.corpora)]
    for alias in (text.alias for text in texts if isinstance(text, CatalogText)):
        try:
            source = catalog.text(alias).source
        except GhostedError:
            continue
        if isinstance(source, WheelMember):
            yield cache / WHEELS / source.sha256
        elif isinstance(source, HubFile):
            yield cache / HUB / _repository("datasets", source.repository)
    if isinstance(spec.model, CatalogModel):
        yield from _of_model(cache, catalog.models.get(spec.model.alias))


def _of_model(cache: Path, entry: ModelEntry | None) -> Iterator[Path]:
    if isinstance(entry, WheelMember):
        yield cache / WHEELS / entry.sha256
    if isinstance(entry, HubModel):
        yield cache / HUB / _repository("models", entry.id)


def _repository(kind: str, name: str) -> str:
    return "--".join([kind, *name.split("/")])
