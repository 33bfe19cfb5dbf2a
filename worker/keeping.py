"""The supervisor's side of the stage cache: it alone reaches the object store.

The job's process may be hostile. It names digests, never paths; what it offers counts only as a plain
file of its folder, and within a limit; where entries lie is for the supervisor to say.
"""

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.artifacts.stages import StageStore
from services.errors import StorageUnavailableError

logger = logging.getLogger(__name__)


class StageKeeper:
    """Fetches and takes entries through `folder`, of `limit_bytes` in all each way.

    A later form of an entry takes the place of the one before.
    `check` raises if the attempt is to stop: nothing is moved after that.
    """

    def __init__(
        self, entries: StageStore, folder: Path, limit_bytes: int, check: Callable[[], None]
    ) -> None:
        self._entries = entries
        self._folder = folder
        self._may_fetch = self._may_take = limit_bytes
        # An entry that is taken again takes the place of the one before.
        self._taken: dict[str, int] = {}
        self._check = check

    def fetch(self, key: str) -> bool:
        """Whether the entry under `key` now lies in the folder; an oversized one does not."""
        self._check()
        try:
            size = self._entries.size_bytes(key)
            if size is None:
                return False
            if size > self._may_fetch:
                logger.warning("stage entry %s of %d bytes is too large and ignored", key, size)
                return False
            self._may_fetch -= size
            self._entries.fetch(key, self._free(key), size, self._on_bytes)
        except (StorageUnavailableError, OSError) as error:
            logger.warning("stage entry %s cannot be fetched: %s", key, type(error).__name__)
            return False
        return True

    def take(self, key: str) -> None:
        """The entry lies in the object store, if it is what it should be and the store answers."""
        self._check()
        try:
            with _plain_file(self._folder / key) as file:
                size = os.fstat(file).st_size
                more = size - self._taken.get(key, 0)
                if more > self._may_take:
                    logger.warning("stage entry %s of %d bytes is too large and not kept", key, size)
                    return
                self._may_take -= more
                self._taken[key] = size
                # By its descriptor: another file may have that name by now.
                self._entries.send(Path(f"/proc/self/fd/{file}"), key, self._on_bytes)
        except (StorageUnavailableError, OSError) as error:
            logger.warning("stage entry %s cannot be kept: %s", key, type(error).__name__)
        finally:
            self._free(key)

    def _on_bytes(self, _arrived: int) -> None:
        self._check()

    def _free(self, key: str) -> Path:
        """The path of `key` in the folder, with nothing there."""
        path = self._folder / key
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        return path


@contextmanager
def _plain_file(path: Path) -> Iterator[int]:
    """A descriptor of the plain file at `path`.

    Raises:
        OSError: there is none: a link, a pipe or a folder is none.
    """
    # Not blocking: the opening of a pipe would wait for its other end.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("not a plain file")
        yield file
    finally:
        os.close(file)
