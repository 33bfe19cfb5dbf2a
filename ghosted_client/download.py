"""Fetches an artifact: in parallel, resumable, checked, and visible only when whole."""

import errno
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import httpx2

from ghosted_client.errors import ChecksumMismatchError, TransferFailedError, UnexpectedAnswerError
from ghosted_client.models import Artifact, ArtifactFile
from ghosted_core.errors import DiskFullError, GhostedError
from ghosted_core.folders import put, require_free, unusable

WORKERS = 4
# Between the tries of a file.
WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
PIECE_BYTES = 1 << 20
TIMEOUT_SECONDS = 60

OK, PARTIAL, FORBIDDEN, RANGE_NOT_SATISFIABLE, FIRST_SERVER_FAULT = 200, 206, 403, 416, 500

OnBytes = Callable[[int], None]


class _StaleLinkError(Exception):
    """The link no longer works; a fresh one may."""


class _StoreBusyError(Exception):
    """The store has a fault that may pass."""


def pull(ask: Callable[[], Artifact], folder: Path, on_bytes: OnBytes) -> Artifact:
    """The artifact that `ask` tells of lies in `folder`, every file checked. See `Client.pull`."""
    require_free(folder)
    artifact = ask()
    for file in artifact.files:
        safe_path(file.path)
    # The name holds job and attempt: leftovers of another one are never taken for this one's.
    arriving = folder.parent / f".{folder.name}.{artifact.job_id}.{artifact.attempt}.part"
    try:
        arriving.mkdir(parents=True, exist_ok=True)
        with httpx2.Client(timeout=TIMEOUT_SECONDS) as http:
            fetch_all(Transfer(http, arriving, on_bytes, Links(ask, artifact)), artifact)
    except OSError as error:
        raise _unwritten(folder, error) from error
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

    ask: Callable[[], Artifact]
    artifact: Artifact
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, path: str) -> str:
        """The current link of a file."""
        with self.lock:
            return next(file.url for file in self.artifact.files if file.path == path)

    def renew(self, path: str, stale: str) -> None:
        """The link of `path` is no longer `stale`."""
        with self.lock:
            current = next(file.url for file in self.artifact.files if file.path == path)
            if current == stale:
                self.artifact = self.ask()


@dataclass(frozen=True)
class Transfer:
    """What the threads of one download share."""

    http: httpx2.Client
    folder: Path
    on_bytes: OnBytes
    links: Links
    stop: threading.Event = field(default_factory=threading.Event)


def fetch_all(transfer: Transfer, artifact: Artifact) -> None:
    """Every file lies in the folder, checked. The first error, or an interruption, stops the others."""
    # Large files first, so that none of them is left alone at the end.
    files = sorted(artifact.files, key=lambda file: -file.size_bytes)
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(fetch, transfer, file) for file in files]
        try:
            for future in as_completed(running):
                future.result()
        except BaseException:
            transfer.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def fetch(transfer: Transfer, file: ArtifactFile) -> None:
    """The file lies in the folder, checked.

    Raises:
        TransferFailedError: it did not arrive in several tries.
        ChecksumMismatchError: it arrived, but is another.
    """
    target = transfer.folder / safe_path(file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    transfer.on_bytes(_size(target))
    for wait in WAITS_SECONDS:
        if target.exists() and _size(target) == file.size_bytes:
            break
        link = transfer.links.of(file.path)
        try:
            _receive(transfer, link, target, file.size_bytes)
        except _StaleLinkError:
            transfer.links.renew(file.path, link)
        except (httpx2.TransportError, _StoreBusyError):
            # What arrived is kept; the next try goes on from there.
            transfer.stop.wait(wait)
    _check(target, file)


def _receive(transfer: Transfer, link: str, target: Path, limit: int) -> None:
    have = _size(target)
    # Compressed on the way, the bytes would not be those that the range counts.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with transfer.http.stream("GET", link, headers=headers) as response:
        if response.status_code == RANGE_NOT_SATISFIABLE:
            target.unlink()
            transfer.on_bytes(-have)
            return
        _check_status(response.status_code, target.name)
        resumed = response.status_code == PARTIAL
        if not resumed:
            transfer.on_bytes(-have)
        with target.open("ab" if resumed else "wb") as stream:
            _write(transfer, response, stream, limit)


def _write(transfer: Transfer, response: httpx2.Response, stream: BinaryIO, limit: int) -> None:
    for piece in response.iter_bytes(PIECE_BYTES):
        if stream.tell() + len(piece) > limit:
            # Else whoever answers could fill the disk before any checksum is looked at.
            raise TransferFailedError(f"more than the {limit} bytes of the manifest arrive")
        if transfer.stop.is_set():
            raise TransferFailedError("another file failed first, or the download was interrupted")
        stream.write(piece)
        transfer.on_bytes(len(piece))


def _check_status(status: int, name: str) -> None:
    if status == FORBIDDEN:
        raise _StaleLinkError
    if status >= FIRST_SERVER_FAULT:
        raise _StoreBusyError
    if status not in {OK, PARTIAL}:
        raise TransferFailedError(f"{name}: the store answered {status}")


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
