"""What this machine has and has left, read without torch: from the kernel's files and from nvidia-smi."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
NVIDIA_SMI = "nvidia-smi"
QUERY = ("--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
QUERY_SECONDS = 20
MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it, in the order of the bus; memory None where it does not say."""

    index: int
    uuid: str
    name: str
    memory_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True)
class Memory:
    """Bytes that there are and that are free; None where the machine does not tell."""

    total_bytes: int | None
    free_bytes: int | None


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi tells of; none if it is not there or does not work."""
    program = shutil.which(NVIDIA_SMI)
    if program is None:
        return ()
    try:
        said = subprocess.run(
            [program, *QUERY], capture_output=True, text=True, timeout=QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ()
    lines = [[part.strip() for part in line.split(",")] for line in said.stdout.splitlines()]
    return tuple(
        Gpu(int(index), uuid, name, _mebibytes(total), _mebibytes(free))
        for index, uuid, name, total, free in (line for line in lines if len(line) == len(Gpu.__match_args__))
        if index.isdecimal()
    )


def _mebibytes(text: str) -> int | None:
    # "[N/A]" is what some devices answer.
    return int(text) * MIB if text.isdecimal() else None


def main_memory(meminfo: Path = MEMINFO, cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> Memory:
    """The memory that this process may use: the machine's, or what its control group leaves it of that."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        total = int(lines["MemTotal"].split()[0]) * 1024
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return Memory(None, None)
    for limit, used in _limits(cgroups, own):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return Memory(total, free)


def _limits(cgroups: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of the groups that this process is in; of both versions of control groups."""
    try:
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):  # noqa: PLR2004 - the format
        if controllers == "":
            yield from _of_groups(cgroups, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _of_groups(cgroups / "memory", path, *names)


def _of_groups(root: Path, path: str, limit: str, used: str, cached: str) -> Iterator[tuple[int, int]]:
    # A container may see its own group as the root, whatever the path says.
    own = root / path.lstrip("/")
    for group in (own, *own.parents):
        if not group.is_relative_to(root):
            return
        most, use = _number(group / limit), _number(group / used)
        if most is not None and use is not None:
            # Pages of files that can be dropped are no use that matters.
            yield most, max(0, use - _statistic(group / "memory.stat", cached))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # Also where the limit is "max".


def _statistic(file: Path, name: str) -> int:
    try:
        return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.split()[0] == name)
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def scratch_root(scratch: Path | None) -> Path:
    """Where jobs' folders lie: as set, or the system's place for such."""
    return scratch or Path(tempfile.gettempdir())


def free_disk(folder: Path) -> int | None:
    """Free bytes where `folder` lies or will lie; None if that cannot be told."""
    existing = next((place for place in (folder, *folder.parents) if place.exists()), None)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None


def cpu_name() -> str:
    """Processor kind and number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{os.uname().machine}, {cores} cores"
