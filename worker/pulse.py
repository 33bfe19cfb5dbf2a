"""What the processes of a worker know of each other without a message: memory that they share."""

import mmap
import os
import struct
import tempfile
import time
from typing import Self

_TIME = struct.Struct("d")
_READY, _DONE = 0, _TIME.size


class Pulse:
    """Since when messages are taken, and when one was dealt with last. `descriptor` is to be handed on."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._cells = mmap.mmap(descriptor, 2 * _TIME.size)

    @classmethod
    def new(cls) -> Self:
        """One that nobody shares yet: no messages are taken."""
        # A file without a name, so nothing is left of it, whatever becomes of the worker.
        with tempfile.TemporaryFile() as file:
            file.truncate(2 * _TIME.size)
            return cls(os.dup(file.fileno()))

    def show_ready(self) -> None:
        """Messages are taken from now on."""
        self._set(_READY)

    def show_done(self) -> None:
        """A wake-up was dealt with just now."""
        self._set(_DONE)

    @property
    def is_ready(self) -> bool:
        """Whether messages are taken."""
        return self._get(_READY) > 0

    @property
    def done_at(self) -> float:
        """The monotonic time at which a wake-up was dealt with last; 0 if none was."""
        return self._get(_DONE)

    def _set(self, place: int) -> None:
        # The monotonic clock is the machine's: every process reads the same.
        _TIME.pack_into(self._cells, place, time.monotonic())

    def _get(self, place: int) -> float:
        found: float = _TIME.unpack_from(self._cells, place)[0]
        return found
