"""Which device a job runs on."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ghosted_core.errors import InvalidSpecError, OutOfMemoryError

# torch has a type of error for a GPU's memory, but for the machine's only these words.
HOST_ALLOCATOR = "DefaultCPUAllocator"


def pick_device(name: str) -> str:
    """`name` if torch can use it; for 'auto' the GPU if there is one, else the CPU.

    Raises:
        InvalidSpecError: there is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSpecError(
            f"'{name}' is not a device.", advice="Use auto, cpu, cuda or cuda:N."
        ) from error
    if device.type not in {"cpu", "cuda"}:
        raise InvalidSpecError(f"Device '{name}' is not supported.", advice="Use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidSpecError(
            f"There is no device '{name}' here: torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} GPU(s).",
            advice="Use --device cpu, or install a CUDA build of torch.",
        )
    return name


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is for want of memory, the device's or the machine's."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and HOST_ALLOCATOR in str(error)


@contextmanager
def memory_faults_named(device: str) -> Iterator[None]:
    """What fails inside for want of memory fails as one of our errors.

    Raises:
        OutOfMemoryError: `device` or the machine has too little.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(f"The job needs more memory than '{device}' has.") from error


@contextmanager
def set_aside(models: Collection[nn.Module]) -> Iterator[None]:
    """Inside, `models`, all on one device, are in host memory: another process has the device for its own."""
    device = next(next(iter(models)).parameters()).device
    if device.type != "cuda":
        yield
        return
    _move(models, torch.device("cpu"))
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        _move(models, device)


def _move(models: Collection[nn.Module], device: torch.device) -> None:
    for model in models:
        # Past transformers, which for some models refuses.
        nn.Module.to(model, device)
