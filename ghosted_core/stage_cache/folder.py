"""What stages found, in a folder of the user's: the cache of the command line."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".safetensors"
LIMIT_BYTES = 4 << 30
KEEP_SECONDS = 30 * 86400


@dataclass(frozen=True)
class FolderStageCache:
    """One file an entry, at most `limit_bytes` of them; those unused for longest go first.

    Several processes may use one folder: a file appears whole, and one that vanishes is a miss.
    """

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def get(self, key: str) -> Path | None:
        """The file of `key`, from now on the one used last."""
        path = self._path(key)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def put(self, key: str, save: Callable[[Path], None]) -> None:
        """Write beside, then give it its name; old entries make room.

        Raises:
            OSError: the disk is full or refuses.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        try:
            save(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        self._make_room()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _make_room(self) -> None:
        now, total = time.time(), 0
        for used, size, path in sorted(self._entries(), reverse=True):
            total += size
            if total > self.limit_bytes or used < now - KEEP_SECONDS:
                path.unlink(missing_ok=True)

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        # Also what a killed process left half written: it has a name of its own and no user.
        for path in self.folder.glob(f"*{SUFFIX}*"):
            try:
                status = path.stat()
            except OSError:
                continue  # Another process removed it.
            found.append((status.st_mtime, status.st_size, path))
        return found
