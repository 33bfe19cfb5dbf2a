"""Whatever happens to jobs, in whatever order, some things hold."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import UUID

import pytest
from sqlalchemy import select

from services.db.models import Artifact, JobEvent
from services.db.sessions import Database, WriteSession
from services.errors import JobFinishedError, LeaseLostError
from services.jobs import attempts, repository, sweeping
from services.jobs.attempts import Fence
from services.jobs.failures import Failure, RetryPolicy
from services.jobs.states import FINAL_STATES, TRANSITIONS, JobState, Move, Transition
from tests.integration.services.helpers import ARTIFACT, EVERYONE, read, submit

POLICY = RetryPolicy(max_attempts=3, delay_seconds=0)
FAILURE = Failure("internal", "broke", "Report it.", retryable=True)
# Where each event leaves the job; others leave it where it is.
AFTER = {name.value: move.target for move, name in TRANSITIONS.items()}

Step = Callable[[WriteSession, Fence], object]
STEPS: list[Step] = [
    lambda s, f: attempts.claim(s, f.job_id, lease_seconds=0, worker="w"),
    lambda s, f: attempts.renew_lease(s, f, lease_seconds=0),
    lambda s, f: attempts.record_event(s, f, "log", {}),
    lambda s, f: attempts.record_metric(s, f, "perplexity", float("inf"), {}),
    lambda s, f: attempts.requeue(s, f, cause="drain", delay_seconds=0),
    lambda s, f: attempts.end_lost_attempt(s, f, FAILURE, POLICY, cancel_requested=False),
    lambda s, f: attempts.finish_succeeded(s, f, ARTIFACT),
    lambda s, f: repository.request_cancel(s, EVERYONE, f.job_id),
    lambda s, _: sweeping.end_expired_attempts(s, POLICY),
]


def _play(database: Database, step: Step, fence: Fence) -> Fence:
    """The step is done, or refused in one of the ways allowed; returns the fence of the latest claim."""
    try:
        with database.write() as session:
            result = step(session, fence)
    except (LeaseLostError, JobFinishedError):
        return fence
    return result.fence if isinstance(result, attempts.Claimed) else fence


def _sweep_until_over(database: Database, job_id: UUID) -> None:
    """Workers that claim and die, and a sweeper, until the job has ended."""
    for _ in range(2 * POLICY.max_attempts + 2):
        with database.write() as session:
            attempts.claim(session, job_id, lease_seconds=0, worker="w")
        with database.write() as session:
            sweeping.end_expired_attempts(session, POLICY)


def _states(database: Database, job_id: UUID) -> list[JobState]:
    with database.read() as session:
        events = session.scalars(select(JobEvent).order_by(JobEvent.number)).all()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert read(database, job_id).event_count == len(events)
    return [JobState.QUEUED, *(AFTER[event.type] for event in events if event.type in AFTER)]


@pytest.mark.parametrize("seed", range(25))
def test_every_history_is_legal_and_ends(database: Database, seed: int) -> None:
    """Random steps, late writers included: only moves of the table, no gaps, and a final state."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    job_id = submit(database)
    fences = [Fence(job_id, 0, UUID(int=0))]
    for _ in range(30):
        fences.append(_play(database, chance.choice(STEPS), chance.choice(fences[-3:])))
    _sweep_until_over(database, job_id)
    states = _states(database, job_id)
    assert all(Move(*pair) in TRANSITIONS for pair in pairwise(states))
    job = read(database, job_id)
    assert JobState(job.state) == states[-1]
    assert job.state in FINAL_STATES
    with database.read() as session:
        assert (session.get(Artifact, job_id) is not None) == (job.state == JobState.SUCCEEDED)


@pytest.mark.parametrize("seed", range(5))
def test_claim_and_cancel_at_once_agree(database: Database, seed: int) -> None:
    """Either the job was never begun, or its worker is told to stop: no cancel is lost."""
    job_id = submit(database)

    def cancel() -> None:
        with database.write() as session:
            repository.request_cancel(session, EVERYONE, job_id)

    def claim() -> Fence | None:
        with database.write() as session:
            claimed = attempts.claim(session, job_id, lease_seconds=60, worker="w")
        return None if claimed is None else claimed.fence

    with ThreadPoolExecutor(2) as pool:
        first, second = (cancel, claim) if seed % 2 else (claim, cancel)
        outcomes = [pool.submit(first), pool.submit(second)]
        fence = next((o.result() for o in outcomes if o.result() is not None), None)
    if fence is None:
        assert read(database, job_id).state == JobState.CANCELLED
        return
    with database.write() as session:
        assert attempts.renew_lease(session, fence, lease_seconds=60).cancel_requested


def test_every_move_leaves_its_name() -> None:
    """The events of moves have different meanings, so that a history can be read."""
    assert {Transition(name) for name in AFTER} == set(Transition)
