"""The errors of running a job, beside those of the core and of the service.

GhostedError
├── DeviceMissingError   the device of the settings is not there
├── RunnerCrashedError   the job's process ended with a fault of ours
└── UploadChangedError   the store gave back other bytes than it got
"""

from enum import StrEnum

from ghosted_core.errors import GhostedError, OutOfMemoryError

__all__ = [
    "DeviceMissingError",
    "OutOfMemoryError",
    "RunnerCrashedError",
    "StopReason",
    "StoppedError",
    "UploadChangedError",
]


class DeviceMissingError(GhostedError):
    """The worker is to use a device that this machine does not have."""

    code = "device_missing"
    advice = "Set GHOSTED_DEVICE to cpu, or to cuda:N with N below the number of GPUs that nvidia-smi lists."


class RunnerCrashedError(GhostedError):
    """The job's process ended without saying why, or spoke nonsense."""

    code = "internal"


class UploadChangedError(GhostedError):
    """The object store does not hold, or gave back, what was sent to it."""

    code = "upload_changed"
    advice = "Submit again; if it recurs, the object store is at fault."
    retryable = True


class StopReason(StrEnum):
    """Why a running attempt is to end."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    LEASE_LOST = "lease_lost"
    SHUTDOWN = "shutdown"


class StoppedError(Exception):
    """The attempt was told to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason
