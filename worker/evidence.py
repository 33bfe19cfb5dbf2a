"""Whether the kernel ended a process for want of memory, told by its counters and never by text.

A process killed for memory gets SIGKILL, as one that an operator kills. What tells them apart is the
count that the kernel keeps for the control group of both worker and job: `oom_kill` in `memory.events`
(version 2) or in `memory.oom_control` (version 1), or, before Linux 4.13, `memory.failcnt`.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from worker.errors import OutOfMemoryError

GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
PROCESSES = Path("/proc")
# What a shell reports for a process that was killed.
SHELL_KILLED = 137
KILLED = frozenset({-signal.SIGKILL, SHELL_KILLED})
# Of 1000. The job's process goes first; databases and workers on the same machine stay.
VICTIM_SCORE = 800
# Version 1 says "unlimited" as the largest number of whole pages.
UNLIMITED_BYTES = 1 << 60
GIB = 1 << 30


@dataclass(frozen=True)
class MemoryGroup:
    """The control group that limits this process's memory: its count of kills, and its limit."""

    counter: Path
    field: str
    limit: Path

    def kills(self) -> int | None:
        """How many processes were killed for memory so far; None if the kernel does not say."""
        try:
            words = self.counter.read_text().split()
        except OSError:
            return None
        if not self.field:
            return _number(words[0]) if words else None
        counts = dict(zip(words[::2], words[1::2], strict=False))
        return _number(counts.get(self.field, ""))

    def limit_bytes(self) -> int | None:
        """How much memory the group may use; None if nothing limits it here."""
        try:
            limit = _number(self.limit.read_text().strip())
        except OSError:
            return None
        return None if limit is None or limit >= UNLIMITED_BYTES else limit


def memory_group(process: Path = GROUPS_OF_PROCESS, groups: Path = GROUPS) -> MemoryGroup | None:
    """The group of the process whose `/proc/.../cgroup` is `process`; None where no kernel counts."""
    candidates = _candidates(process, groups)
    return next((group for group in candidates if group.kills() is not None), None)


def _candidates(process: Path, groups: Path) -> Iterator[MemoryGroup]:
    for controllers, path in _memberships(process):
        if "memory" in controllers.split(","):
            for folder in _folders(groups / "memory", path):
                yield from _version_1(folder)
        elif not controllers:
            for root in (groups, groups / "unified"):
                for folder in _folders(root, path):
                    yield MemoryGroup(folder / "memory.events", "oom_kill", folder / "memory.max")


def _version_1(folder: Path) -> Iterator[MemoryGroup]:
    limit = folder / "memory.limit_in_bytes"
    yield MemoryGroup(folder / "memory.oom_control", "oom_kill", limit)
    yield MemoryGroup(folder / "memory.failcnt", "", limit)


def _memberships(process: Path) -> Iterator[tuple[str, str]]:
    """Controllers (none: version 2) and path of each group that the process is in."""
    try:
        lines = process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, path.strip("/")


def _folders(root: Path, path: str) -> tuple[Path, Path]:
    # In a container the path may be the one outside, and its group the root of what is seen inside.
    return root / path, root


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


@dataclass(frozen=True)
class MemoryWatch:
    """The count as it was before a process began."""

    group: MemoryGroup | None
    kills_before: int

    @classmethod
    def begin(cls, group: MemoryGroup | None = None) -> Self:
        """A watch that begins now, on this process's own group unless another is given."""
        group = group or memory_group()
        return cls(group, (group and group.kills()) or 0)

    def explain(self, exit_code: int) -> OutOfMemoryError | None:
        """The error that the process ended by, if it was killed for memory; None if nothing proves it."""
        if self.group is None or exit_code not in KILLED:
            return None
        if (self.group.kills() or 0) <= self.kills_before:
            return None
        limit = self.group.limit_bytes()
        allowed = "" if limit is None else f", of which there is {limit / GIB:.1f} GiB"
        return OutOfMemoryError(f"The kernel ended the job's process for want of memory{allowed}.")


def prefer_as_victim(pid: int, processes: Path = PROCESSES) -> None:
    """If memory runs out, the kernel ends `pid` and what it starts before anything else."""
    try:
        (processes / str(pid) / "oom_score_adj").write_text(str(VICTIM_SCORE))
    except OSError:
        return  # It has ended already, or the system has no such thing.
