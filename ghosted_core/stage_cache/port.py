"""Where what a stage found outlives the run that found it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class StageCache(Protocol):
    """Files by the digest of what determines them; nobody promises that they are whole."""

    def get(self, key: str) -> Path | None:
        """The file that was kept under `key`, to be read before the next call; None if there is none."""

    def put(self, key: str, save: Callable[[Path], None]) -> None:
        """What `save` writes to the path it is given is kept under `key`, or not: it may be too much.

        Raises:
            OSError: the disk is full or refuses.
        """


class NoStageCache:
    """Keeps nothing."""

    def get(self, _key: str) -> Path | None:
        """None."""
        return None

    def put(self, _key: str, _save: Callable[[Path], None]) -> None:
        """Do nothing: not even write."""
