"""Fetches an artifact: in parallel, resumable, checked, and visible only when whole."""

import errno
import hashlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ghosted_client.errors import (
    ChecksumMismatchError,
    ConnectionFailedError,
    TransferFailedError,
    UnexpectedAnswerError,
)
from ghosted_client.models import Artifact, ArtifactFile
from ghosted_client.wire import PIECE_BYTES, Flow, Outgoing, Wire
from ghosted_core.errors import DiskFullError, GhostedError
from ghosted_core.folders import put, require_free, unusable

WORKERS = 4
# Between the tries of a file that brought nothing; one that did begins anew.
WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)

OK, PARTIAL, FORBIDDEN, RANGE_NOT_SATISFIABLE, FIRST_SERVER_FAULT = 200, 206, 403, 416, 500

OnBytes = Callable[[int], None]
Ask = Callable[[], Awaitable[Artifact]]


class _StaleLinkError(Exception):
    """The link no longer works; a fresh one may."""


class _StoreBusyError(Exception):
    """The store has a fault that may pass."""


async def pull(wire: Wire, ask: Ask, folder: Path, on_bytes: OnBytes, workers: int = WORKERS) -> Artifact:
    """The artifact that `ask` tells of lies in `folder`, every file checked. See `Client.pull`."""
    require_free(folder)
    artifact = await ask()
    for file in artifact.files:
        safe_path(file.path)
    # The name holds job and attempt: leftovers of another one are never taken for this one's.
    arriving = folder.parent / f".{folder.name}.{artifact.job_id}.{artifact.attempt}.part"
    # The store is another place: it never sees the key.
    store = wire.elsewhere()
    try:
        arriving.mkdir(parents=True, exist_ok=True)
        await fetch_all(Transfer(store, arriving, on_bytes, Links(ask, artifact)), artifact, workers)
    except OSError as error:
        raise _unwritten(folder, error) from error
    finally:
        await store.close()
    put(arriving, folder)
    return artifact


def _unwritten(folder: Path, error: OSError) -> GhostedError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(f"The disk filled up while fetching '{folder}'; what has arrived is kept.")
    return unusable(folder, error)


def safe_path(path: str) -> PurePosixPath:
    """`path`, if it names a file below some folder.

    Raises:
        UnexpectedAnswerError: it is absolute, climbs out or is spelled ambiguously.
    """
    pure = PurePosixPath(path)
    plain = path.isprintable() and "\\" not in path and ":" not in path
    if not plain or not pure.parts or pure.is_absolute() or ".." in pure.parts or str(pure) != path:
        raise UnexpectedAnswerError(f"the manifest names {path!r}, which is not a plain relative path")
    return pure


@dataclass
class Links:
    """The files' links; asked for anew when one has run out."""

    ask: Ask
    artifact: Artifact

    def of(self, path: str) -> str:
        """The current link of a file."""
        return next(file.url for file in self.artifact.files if file.path == path)

    async def renew(self, path: str, stale: str) -> None:
        """The link of `path` is no longer `stale`, if the service gives another."""
        # Two files that find out at once may both ask; either answer serves both.
        if self.of(path) == stale:
            self.artifact = await self.ask()


@dataclass(frozen=True)
class Transfer:
    """What the files of one download share."""

    wire: Wire
    folder: Path
    on_bytes: OnBytes
    links: Links
    stop: threading.Event = field(default_factory=threading.Event)


async def fetch_all(transfer: Transfer, artifact: Artifact, workers: int = WORKERS) -> None:
    """Every file lies in the folder, checked. The first error, or an interruption, stops the others."""
    # Large files first, so that none of them is left alone at the end.
    files = sorted(artifact.files, key=lambda file: -file.size_bytes)
    await transfer.wire.together([partial(fetch, transfer, file) for file in files], workers, transfer.stop)


async def fetch(transfer: Transfer, file: ArtifactFile) -> None:
    """The file lies in the folder, checked.

    Raises:
        TransferFailedError: it did not arrive in several tries.
        ChecksumMismatchError: it arrived, but is another.
    """
    target = transfer.folder / safe_path(file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    transfer.on_bytes(_size(target))
    tries = 0
    while tries < len(WAITS_SECONDS) and not (target.exists() and _size(target) == file.size_bytes):
        had = _size(target)
        wait = await _try(transfer, file, target, WAITS_SECONDS[tries])
        tries = 0 if _size(target) > had else tries + 1
        if wait is not None and not transfer.stop.is_set():
            await transfer.wire.sleep(wait)
    await transfer.wire.aside(partial(_check, target, file))


async def _try(transfer: Transfer, file: ArtifactFile, target: Path, wait: float) -> float | None:
    """More of the file has arrived, if all went well; else how long to wait before the next try."""
    link = transfer.links.of(file.path)
    try:
        await _receive(transfer, link, target, file.size_bytes)
    except _StaleLinkError:
        await transfer.links.renew(file.path, link)
    except (ConnectionFailedError, _StoreBusyError):
        # What arrived is kept; the next try goes on from there.
        return wait
    return None


async def _receive(transfer: Transfer, link: str, target: Path, limit: int) -> None:
    have = _size(target)
    # Compressed on the way, the bytes would not be those that the range counts.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    async with transfer.wire.stream(Outgoing("GET", link, headers=headers)) as flow:
        if flow.status == RANGE_NOT_SATISFIABLE:
            _drop(target)
            transfer.on_bytes(-have)
            return
        _check_status(flow.status, target.name)
        resumed = flow.status == PARTIAL
        if resumed:
            _check_range(flow, have, target.name)
        else:
            transfer.on_bytes(-have)
        with target.open("ab" if resumed else "wb") as stream:
            await _write(transfer, flow, stream, limit)


async def _write(transfer: Transfer, flow: Flow, stream: BinaryIO, limit: int) -> None:
    async for piece in gathered(flow.pieces()):
        if stream.tell() + len(piece) > limit:
            # Else whoever answers could fill the disk before any checksum is looked at.
            raise TransferFailedError(f"more than the {limit} bytes of the manifest arrive")
        if transfer.stop.is_set():
            raise TransferFailedError("another file failed first, or the download was interrupted")
        await transfer.wire.aside(partial(stream.write, piece))
        transfer.on_bytes(len(piece))


async def gathered(pieces: AsyncIterator[bytes], size: int = PIECE_BYTES) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `size` or somewhat more, but for the last one, also if it breaks off."""
    held = bytearray()
    try:
        async for piece in pieces:
            held += piece
            if len(held) >= size:
                yield bytes(held)
                held.clear()
    except ConnectionFailedError:
        if held:
            yield bytes(held)
        raise
    if held:
        yield bytes(held)


def _check_range(flow: Flow, have: int, name: str) -> None:
    told = flow.headers.get("content-range", "")
    if not told.startswith(f"bytes {have}-"):
        raise TransferFailedError(f"{name}: asked from byte {have} on, the store sends {told[:100]!r}")


def _check_status(status: int, name: str) -> None:
    if status == FORBIDDEN:
        raise _StaleLinkError
    if status >= FIRST_SERVER_FAULT:
        raise _StoreBusyError
    if status not in {OK, PARTIAL}:
        raise TransferFailedError(f"{name}: the store answered {status}")


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check(path: Path, file: ArtifactFile) -> None:
    if not path.exists() or _size(path) != file.size_bytes:
        raise TransferFailedError(f"{file.path}: {_size(path)} of {file.size_bytes} bytes arrived")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        path.unlink()
        raise ChecksumMismatchError(f"{file.path}: sha256 is {found}, the manifest says {file.sha256}")
