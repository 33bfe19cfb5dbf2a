"""Whether a job fits onto this machine: what is free now, against what it will take."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import torch

from ghosted_core.checkpoint.write import require_space
from ghosted_core.criteria import Evidence, Findings, criterion_for, plan_of
from ghosted_core.describe import ModelDescription
from ghosted_core.estimate import Disk, Estimate, estimate
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import JobSpec
from ghosted_core.wheels import Log

GIGA = 1e9
_MEMORY = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Room:
    """Bytes that are free now, None where the system does not say.

    `memory_free_bytes` is the device's; `host_free_bytes` what this process may still take of the
    machine's memory, within the limits of its control groups. `folder` is where the disk was looked at.
    """

    device: str
    memory_free_bytes: int | None
    host_free_bytes: int | None
    folder: str
    disk_free_bytes: int


def room_on(device: str, out: Path) -> Room:
    """What is free on `device`, in memory, and on the disk where `out` would be written."""
    folder = next(parent for parent in (out / "here").absolute().parents if parent.exists())
    return Room(
        device=device,
        memory_free_bytes=memory_free(device),
        host_free_bytes=_host_free(),
        folder=str(folder),
        disk_free_bytes=shutil.disk_usage(folder).free,
    )


def memory_free(device: str) -> int | None:
    """Bytes that are free of the device's memory; None where the system does not say."""
    return torch.cuda.mem_get_info(device)[0] if torch.device(device).type == "cuda" else _host_free()


def shortages(estimated: Estimate, room: Room) -> tuple[str, ...]:
    """A sentence for each thing of which the job needs more than is free; none if it may well fit."""
    memory, disk = estimated.memory, estimated.disk
    needs = [
        (f"memory of '{room.device}'", memory.peak_bytes, room.memory_free_bytes),
        (f"disk space in '{room.folder}'", disk.peak_bytes, room.disk_free_bytes),
    ]
    if torch.device(room.device).type != "cpu":
        # Weights pass through the machine's memory on their way to the device.
        needs.append(("memory of this machine", memory.weights_bytes, room.host_free_bytes))
    return tuple(
        f"This will not fit: the job needs at least {needed / GIGA:.3g} GB of {name}, "
        f"and {free / GIGA:.3g} GB are free."
        for name, needed, free in needs
        if free is not None and free < needed
    )


def least_estimate(spec: JobSpec, sizes: ModelDescription) -> Estimate:
    """What the job takes at the least, before it is known which layers go.

    Exact where they are named, or go by number; else as if the largest layers went, in one run.
    """
    count, layer_count = spec.removal_count(sizes.layer_count), sizes.layer_count
    criterion = criterion_for(spec.strategy)
    if criterion.evidence is Evidence.NOTHING:
        plan = plan_of(criterion.choose(count, layer_count, Findings()), layer_count)
        return estimate(spec, sizes, plan)
    largest_first = tuple(sorted(sizes.layer_parameters, reverse=True))
    plan = PruningPlan.from_removed(range(count), layer_count=layer_count)
    return estimate(spec, replace(sizes, layer_parameters=largest_first), plan)


def require_room(spec: JobSpec, sizes: ModelDescription, device: str, out: Path, log: Log) -> None:
    """The checkpoint may fit onto the disk of `out`; no weight has been read to know it.

    Memory that will not do is only logged: the operating system may find some.

    Raises:
        DiskFullError: it cannot fit.
    """
    least = least_estimate(spec, sizes)
    require_space(out, least.disk.checkpoint_bytes)
    without_disk = replace(least, disk=Disk(checkpoint_bytes=0, scratch_bytes=0))
    for sentence in shortages(without_disk, room_on(device, out)):
        log(sentence)


def _host_free() -> int | None:
    known = [free for free in (_available(), *_group_limits()) if free is not None]
    return min(known, default=None)


def _available() -> int | None:
    """What the kernel says that processes may take without swapping."""
    if not _MEMORY.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _group_limits() -> Iterator[int | None]:
    """What each control group (version 2) around this process leaves of its limit."""
    if not _GROUPS.exists():
        return
    own = [line.removeprefix("0::") for line in _GROUPS.read_text().splitlines() if line.startswith("0::")]
    for path in own:
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield _left_in(_GROUP_ROOT / group)


def _left_in(group: Path) -> int | None:
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        # The root group, or a system that counts otherwise: no limit is known.
        return None
    if limit == "max":
        return None
    # Files read long ago count as used, but make way.
    return max(0, int(limit) - used + int(fields.get("inactive_file", 0)))
