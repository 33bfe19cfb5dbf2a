"""Where the jobs of a worker run, and how much room there is.

A worker has one device. A job's process sees no other GPU than that, so it cannot reach for one.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from services.workers.repository import Device
from worker.errors import DeviceMissingError
from worker.machine import Gpu, cpu_name, free_disk, list_gpus, main_memory

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Room:
    """Bytes that are free now for a job; None where the machine does not tell."""

    memory_bytes: int | None
    disk_bytes: int | None


@dataclass(frozen=True)
class Place:
    """`device` is what jobs are told; `gpu` is what CUDA calls the one GPU that they see, if any.

    `scratch` is the folder in which their files lie.
    """

    device: str
    gpu: str | None
    scratch: Path

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """The variables `outer`, changed so that only the GPU of this place can be seen."""
        if self.gpu is None:
            return dict(outer)
        # In the order of the bus, as nvidia-smi counts: CUDA's own order puts the fastest first.
        return {ORDER: "PCI_BUS_ID", **outer, VISIBLE: self.gpu}

    def devices(self) -> tuple[Device, ...]:
        """The device that jobs run on, as the list of workers shows it."""
        if self.gpu is None:
            return (Device("cpu", cpu_name(), main_memory().total_bytes),)
        found = _find(self.gpu, list_gpus())
        if found is None:
            return (Device("cuda", self.gpu, None),)
        return (Device("cuda", found.name, found.memory_bytes),)

    def gpu_identity(self) -> str | None:
        """What tells the GPU from all others of this machine, in whatever container; None without a GPU."""
        if self.gpu is None:
            return None
        found = _find(self.gpu, list_gpus())
        # A number means something else in another container, which has another host name.
        return f"{socket.gethostname()} {self.gpu}" if found is None else found.uuid

    def room(self) -> Room:
        """What is free at this moment."""
        if self.gpu is None:
            return Room(main_memory().free_bytes, free_disk(self.scratch))
        found = _find(self.gpu, list_gpus())
        return Room(None if found is None else found.free_bytes, free_disk(self.scratch))


def find_place(device: str, outer: Mapping[str, str], scratch: Path) -> Place:
    """The place that the setting `device` means on this machine.

    Raises:
        DeviceMissingError: nvidia-smi knows of fewer GPUs than the setting counts on.
    """
    kind, _, number = device.partition(":")
    if kind not in {"auto", "cuda"}:
        return Place(device, None, scratch)
    visible = _visible(outer, list_gpus())
    if kind == "auto" and (not visible or _torch_is_without_cuda()):
        return Place("auto" if not visible else "cpu", None, scratch)
    index = int(number or 0)
    if visible is None:
        # Nothing tells what there is: torch will find out.
        return Place("cuda", str(index), scratch)
    if index >= len(visible):
        raise DeviceMissingError(f"there is no device '{device}' here, but {len(visible)} GPU(s)")
    return Place("auto" if kind == "auto" else "cuda", visible[index], scratch)


def _visible(outer: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[str, ...] | None:
    """What CUDA calls the GPUs that this worker may use; None if that cannot be told."""
    if VISIBLE in outer:
        return tuple(name.strip() for name in outer[VISIBLE].split(",") if name.strip())
    return tuple(str(gpu.index) for gpu in gpus) or None


def _find(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The GPU that CUDA calls `name`: a number, or the beginning of its identifier."""
    if name.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(name)), None)
    return next((gpu for gpu in gpus if gpu.uuid.startswith(name)), None)


def _torch_is_without_cuda() -> bool:
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
