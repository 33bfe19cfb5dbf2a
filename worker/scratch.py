"""The private folder of one attempt, gone when the attempt is over, whatever became of it."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ghosted-job-"
HALF_MADE_SECONDS = 3600


@dataclass(frozen=True)
class Scratch:
    """Where things lie during an attempt."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Where the runner leaves its result."""
        return self.folder / "checkpoint"

    @property
    def read_back(self) -> Path:
        """Where the uploaded bytes come back to."""
        return self.folder / "read_back"

    @property
    def stages(self) -> Path:
        """Where what stages found passes between the runner and the supervisor."""
        return self.folder / "stages"

    @property
    def log(self) -> Path:
        """What the attempt's processes printed."""
        return self.folder / "output.log"


@contextmanager
def open_scratch(parent: Path | None) -> Iterator[Scratch]:
    """An empty private folder in `parent` (None: the system's); those of killed workers are removed."""
    root = parent or Path(tempfile.gettempdir())
    root.mkdir(parents=True, exist_ok=True)
    remove_abandoned(root)
    making = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=root))
    descriptor = os.open(making, os.O_RDONLY)
    folder = root / making.name.removeprefix(".")
    try:
        # Held as long as this process lives: that is how others know that the folder is in use.
        # Only a locked folder gets a name that others look at.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        making.rename(folder)
        for name in ("home", "tmp", "stages"):
            (folder / name).mkdir()
        yield Scratch(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_half_made(root: Path) -> None:
    """What a worker was making when it was killed goes too: a moment is all that takes."""
    for folder in root.glob(f".{PREFIX}*"):
        try:
            age = time.time() - folder.lstat().st_mtime
        except OSError:
            continue
        if age > HALF_MADE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(root: Path) -> None:
    """The scratch folders in `root` whose worker is gone are removed."""
    _remove_half_made(root)
    for folder in root.glob(PREFIX + "*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError:
            continue  # Removed meanwhile, or another user's.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
