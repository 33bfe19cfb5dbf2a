"""How many event streams of one key are open: a stream costs a connection for as long as its job lasts."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.errors import TooManyStreamsError

# A place is free when a watched job or its watcher ends; when that is, nobody knows.
RETRY_AFTER_SECONDS = 10


class Places:
    """The open streams of this process. Belongs to the event loop: nothing comes in between."""

    def __init__(self, most: int) -> None:
        """At most `most` at once for each key; 0: any number."""
        self._most = most
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, who: str) -> AsyncIterator[None]:
        """One more stream of `who` is open.

        Raises:
            TooManyStreamsError: as many as allowed are.
        """
        if self._most and self._taken[who] >= self._most:
            raise TooManyStreamsError(
                f"{self._most} event streams of this key are open already",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self._taken[who] += 1
        try:
            yield
        finally:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]

    def __len__(self) -> int:
        """How many are open."""
        return self._taken.total()
