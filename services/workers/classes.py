"""Memory classes: jobs of about one size share a queue, and workers listen to those they can hold.

A class says which jobs are worth offering to a worker. Whether one fits is decided by bytes, when the
worker is about to take it.
"""

import re
from dataclasses import dataclass

# The queue of the first class, which is also that of jobs whose size is not known.
QUEUE = "ghosted"
GIB = 1 << 30
_ENTRY = re.compile(r"(?P<name>[a-z][a-z0-9_-]{0,31})(:(?P<limit>[0-9]+(\.[0-9]+)?))?")


@dataclass(frozen=True)
class MemoryClass:
    """Jobs that need at most `limit_bytes`, and more than the class before allows; None is no limit."""

    name: str
    limit_bytes: int | None


@dataclass(frozen=True)
class MemoryClasses:
    """The classes from the smallest to the largest; the last one has no limit."""

    classes: tuple[MemoryClass, ...]

    def queue_for(self, needs_bytes: int | None) -> str:
        """The queue of a job that needs so much; None is not known."""
        return self._queue(self._place(needs_bytes))

    def queues_of(self, memory_bytes: int | None) -> tuple[str, ...]:
        """The queues of a worker with so much memory (None: not known), the largest class first.

        So a large worker takes large jobs, which few can take, before it helps with small ones.
        """
        return tuple(self._queue(place) for place in reversed(range(self._highest(memory_bytes) + 1)))

    def name_of(self, memory_bytes: int | None) -> str:
        """The largest class of which a worker with so much memory can hold any job."""
        return self.classes[self._highest(memory_bytes)].name

    def _highest(self, memory_bytes: int | None) -> int:
        return len(self.classes) - 1 if memory_bytes is None else self._place(memory_bytes)

    def _place(self, amount_bytes: int | None) -> int:
        if amount_bytes is None:
            return 0
        limits = [one.limit_bytes for one in self.classes]
        return next(place for place, limit in enumerate(limits) if limit is None or amount_bytes <= limit)

    def _queue(self, place: int) -> str:
        return QUEUE if place == 0 else f"{QUEUE}.{self.classes[place].name}"


ONE_CLASS = MemoryClasses((MemoryClass("any", None),))


def parse_classes(text: str) -> MemoryClasses:
    """The classes of a text such as 'small:16,medium:48,large': names, and limits in GiB but for the last.

    Raises:
        ValueError: it is no such text.
    """
    entries = [_ENTRY.fullmatch(part.strip()) for part in text.split(",")]
    found = [entry for entry in entries if entry is not None]
    limits = [float(entry["limit"]) for entry in found if entry["limit"] is not None]
    whole = len(found) == len(entries) and all(entry["limit"] for entry in found[:-1])
    if not whole or found[-1]["limit"] is not None:
        raise ValueError("memory_classes must be like 'small:16,medium:48,large': the last has no limit")
    if len({entry["name"] for entry in found}) != len(found) or limits != sorted(set(limits)):
        raise ValueError("memory_classes must have different names, and limits that rise")
    return MemoryClasses(tuple(MemoryClass(entry["name"], _bytes(entry["limit"])) for entry in found))


def _bytes(gibibytes: str | None) -> int | None:
    return None if gibibytes is None else int(float(gibibytes) * GIB)
