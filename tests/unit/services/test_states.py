from itertools import pairwise, product

import pytest

from services.errors import TransitionError
from services.jobs.failures import RetryPolicy, state_after_lost_attempt
from services.jobs.states import ACTIVE_STATES, FINAL_STATES, STATES, TRANSITIONS, JobState, Move, transition


@pytest.mark.parametrize(("source", "target"), list(product(JobState, JobState)))
def test_every_pair_is_a_move_or_an_error(source: JobState, target: JobState) -> None:
    """Each pair of states either is in the table or raises."""
    if Move(source, target) in TRANSITIONS:
        assert transition(source, target) == TRANSITIONS[Move(source, target)]
    else:
        with pytest.raises(TransitionError, match=f"{source} cannot become {target}"):
            transition(source, target)


@pytest.mark.parametrize("final", sorted(FINAL_STATES))
def test_final_states_are_final(final: JobState) -> None:
    """Nothing leaves succeeded, failed or cancelled."""
    assert not [move for move in TRANSITIONS if move.source == final]


def test_states_are_active_or_final() -> None:
    """Every state is on exactly one side."""
    assert ACTIVE_STATES | FINAL_STATES == STATES
    assert not ACTIVE_STATES & FINAL_STATES


@pytest.mark.parametrize("state", sorted(STATES - {JobState.QUEUED}))
def test_every_state_can_be_reached(state: JobState) -> None:
    """Each state but the first is the target of a move."""
    assert [move for move in TRANSITIONS if move.target == state]


@pytest.mark.parametrize(("attempt", "cancel"), list(product([1, 2, 3, 4], [False, True])))
def test_a_lost_attempt_has_a_legal_sequel(attempt: int, *, cancel: bool) -> None:
    """Whatever follows a lost attempt is a move of the table, and attempts are limited."""
    target = state_after_lost_attempt(attempt, cancel_requested=cancel, policy=RetryPolicy(3))
    transition(JobState.RUNNING, target)
    assert (target is JobState.QUEUED) == (attempt < 3 and not cancel)


def test_waiting_doubles() -> None:
    """Each further attempt waits twice as long as the one before it."""
    policy = RetryPolicy(max_attempts=5, delay_seconds=2)
    delays = [policy.delay_after(attempt) for attempt in (1, 2, 3, 4)]
    assert delays[0] == 2
    assert all(later == 2 * earlier for earlier, later in pairwise(delays))
