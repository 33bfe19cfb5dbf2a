"""Time and memory of a stage."""

import resource
import sys
import time
from pathlib import Path

import torch

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # proc(5): resets the peak resident set size of the process


class ProcessMeter:
    """Wall-clock time and the peak memory in use since `restart`.

    Memory is the device's where a device is given (bytes allocated by torch), else the resident
    set of this process. Where the kernel cannot reset its peak (not Linux, or not permitted), the
    figure is the peak since the process began.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self.started = time.monotonic()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            _reset_resident_peak()

    def seconds(self) -> float:
        """Wall-clock seconds since `restart`."""
        return time.monotonic() - self.started

    def peak_memory_bytes(self) -> int:
        """Highest memory use since `restart`, in bytes."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return _resident_peak_bytes()


def resident_bytes() -> int:
    """What of this process is in memory now; where the system does not tell, the most that ever was."""
    return _status_bytes("VmRSS:") or _resident_peak_bytes()


def _status_bytes(name: str) -> int | None:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


def _reset_resident_peak() -> None:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return  # The class docstring says what the figure means then.


def _resident_peak_bytes() -> int:
    told = _status_bytes("VmHWM:")
    if told is not None:
        return told
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
