"""The errors of running a job, beside those of the core and of the service.

GhostedError
<<<<<<< HEAD
├── DeviceMissingError   the device of the settings is not there
├── OutOfMemoryError     the device or the machine has too little memory
=======
>>>>>>> 1df0caf616397d0db354b4ef7d4146c13d371602
├── RunnerCrashedError   the job's process ended with a fault of ours
└── UploadChangedError   the store gave back other bytes than it got
"""

from enum import StrEnum

from ghosted_core.errors import GhostedError, OutOfMemoryError

<<<<<<< HEAD

class DeviceMissingError(GhostedError):
    """The worker is to use a device that this machine does not have."""

    code = "device_missing"
    advice = "Set GHOSTED_DEVICE to cpu, or to cuda:N with N below the number of GPUs that nvidia-smi lists."


class OutOfMemoryError(GhostedError):
    """The device or the machine has too little memory for this job."""

    code = "out_of_memory"
    advice = "Use shorter calibration and evaluation windows, a smaller model or dtype bfloat16."
=======
__all__ = ["OutOfMemoryError", "RunnerCrashedError", "StopReason", "StoppedError", "UploadChangedError"]
>>>>>>> 1df0caf616397d0db354b4ef7d4146c13d371602


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
