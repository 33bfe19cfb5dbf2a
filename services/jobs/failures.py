"""Why a job failed, and what may follow."""

from dataclasses import asdict, dataclass
from typing import Any

from ghosted_core.errors import GhostedError
from services.jobs.states import JobState

MESSAGE_LIMIT = 4000


@dataclass(frozen=True)
class Failure:
    """What the user is told: a stable code, what happened, what to try, and where it was.

    `retryable` says whether the same request may succeed another time.
    """

    code: str
    message: str
    advice: str
    stage: str | None = None
    retryable: bool = False
    attempt: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for the row."""
        return {**asdict(self), "message": self.message[:MESSAGE_LIMIT]}


def failure_of(error: GhostedError, *, stage: str | None = None) -> Failure:
    """What the user is told of `error`."""
    return Failure(error.code, error.message, error.hint, stage, error.retryable)


@dataclass(frozen=True)
class RetryPolicy:
    """How often a job is begun, and how long it waits before it is begun again."""

    max_attempts: int = 3
    delay_seconds: float = 5

    def delay_after(self, attempt: int) -> float:
        """Seconds to wait after `attempt` (1, 2, ...) was lost; doubles each time."""
        return self.delay_seconds * 2.0 ** (attempt - 1)


def state_after_lost_attempt(counted: int, *, cancel_requested: bool, policy: RetryPolicy) -> JobState:
    """What becomes of a running job whose attempt, the `counted`-th that counts, ended without a result."""
    if cancel_requested:
        return JobState.CANCELLED
    return JobState.QUEUED if counted < policy.max_attempts else JobState.FAILED
