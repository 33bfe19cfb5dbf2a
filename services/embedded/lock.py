"""One stack at a time in a data folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.embedded.errors import FolderInUseError, FolderUnusableError


@contextmanager
def locked(data_folder: Path) -> Iterator[None]:
    """No other process holds `data_folder` during the body; the kernel lets go if we are killed.

    Raises:
        FolderInUseError: another process holds it.
        FolderUnusableError: the folder cannot hold a lock.
    """
    try:
        descriptor = os.open(data_folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderUnusableError(f"{data_folder / 'lock'} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise FolderInUseError(f"Process {holder} runs its stack in {data_folder}.") from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
