r"""What can become of a job, as data.

(new) -> queued -> running -> succeeded | failed | cancelled
              \-> cancelled
         running -> queued, when its worker is lost or a passing fault allows another attempt
"""

from dataclasses import dataclass
from enum import StrEnum

from services.errors import TransitionError


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Transition(StrEnum):
    """The moves, named as the events they leave behind."""

    CLAIMED = "claimed"
    REQUEUED = "requeued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Move:
    """From one state to another."""

    source: JobState
    target: JobState


TRANSITIONS: dict[Move, Transition] = {
    Move(JobState.QUEUED, JobState.RUNNING): Transition.CLAIMED,
    Move(JobState.QUEUED, JobState.CANCELLED): Transition.CANCELLED,
    Move(JobState.RUNNING, JobState.QUEUED): Transition.REQUEUED,
    Move(JobState.RUNNING, JobState.SUCCEEDED): Transition.SUCCEEDED,
    Move(JobState.RUNNING, JobState.FAILED): Transition.FAILED,
    Move(JobState.RUNNING, JobState.CANCELLED): Transition.CANCELLED,
}

STATES = frozenset(JobState)
ACTIVE_STATES = frozenset({JobState.QUEUED, JobState.RUNNING})
FINAL_STATES = STATES - ACTIVE_STATES


def transition(source: JobState, target: JobState) -> Transition:
    """The name of the move from `source` to `target`.

    Raises:
        TransitionError: there is no such move.
    """
    found = TRANSITIONS.get(Move(source, target))
    if found is None:
        raise TransitionError(f"a job that is {source} cannot become {target}")
    return found
