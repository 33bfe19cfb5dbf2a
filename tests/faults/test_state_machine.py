"""Submit, claim, heartbeat, lose, finish, cancel and expire, in any order that hypothesis can think of."""

from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select, text

from services.db.models import Artifact, Job, JobEvent, OutboxMessage
from services.db.sessions import Database
from services.errors import JobFinishedError, LeaseLostError
from services.jobs import attempts, orders, repository, sweeping
from services.jobs.attempts import Fence, NewArtifact
from services.jobs.excuses import GIVEN_BACK
from services.jobs.failures import Failure, RetryPolicy
from services.jobs.repository import NewJob
from services.jobs.service import submit
from services.jobs.states import ACTIVE_STATES, FINAL_STATES, TRANSITIONS, JobState, Move
from tests.faults.jobs import EVERYONE, stand_in

POLICY = RetryPolicy(max_attempts=3, delay_seconds=0)
FAILURE = Failure("upload_changed", "broke", "Try again.", retryable=True)
LEASE_SECONDS = 600
EXAMPLES = 40
# Where each event leaves the job; others leave it where it is.
AFTER = {name.value: move.target for move, name in TRANSITIONS.items()}


@dataclass
class Known:
    """What must be true of one job."""

    state: JobState = JobState.QUEUED
    owner: Fence | None = None
    attempt: int = 0
    counted: int = 0
    asked_to_end: bool = False
    artifact: int | None = None
    fences: list[Fence] = field(default_factory=list)


class Lives(RuleBasedStateMachine):
    """The real functions on the real database, beside a model of a few lines."""

    database: Database
    steps: int
    job_ids = Bundle("job_ids")
    fences = Bundle("fences")

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[UUID, Known] = {}
        with self.database.write() as session:
            session.execute(text("TRUNCATE jobs CASCADE"))

    @initialize(target=job_ids)
    def begin(self) -> UUID:
        """There is a job from the start."""
        return self.submit_one()

    @rule(target=job_ids)
    def submit(self) -> UUID:
        """One more job."""
        return self.submit_one()

    def submit_one(self) -> UUID:
        with self.database.write() as session:
            job_id = submit(session, NewJob(stand_in(), deadline_seconds=600)).id
        self.known[job_id] = Known()
        return job_id

    @rule(target=fences, job_id=job_ids)
    def claim(self, job_id: UUID) -> Fence:
        """A worker asks: it gets the job if and only if that waits."""
        known = self.known[job_id]
        with self.database.write() as session:
            claimed = attempts.claim(session, job_id, lease_seconds=LEASE_SECONDS, worker="w")
        assert (claimed is not None) == (known.state is JobState.QUEUED)
        if claimed is None:
            return multiple()
        known.state, known.owner = JobState.RUNNING, claimed.fence
        known.attempt, known.counted = known.attempt + 1, known.counted + 1
        assert claimed.fence.attempt == known.attempt
        return claimed.fence

    @rule(fence=fences)
    def claim_again(self, fence: Fence) -> None:
        """A worker that never heard the answer asks again: it has its own attempt, if that still runs."""
        with self.database.write() as session:
            again = attempts.claim(
                session, fence.job_id, lease_seconds=LEASE_SECONDS, worker="w", token=fence.lease_token
            )
            if again is not None and again.fence != fence:
                session.rollback()
                again = None
        assert (again is not None) == self.owns(fence)

    @rule(fence=fences)
    def heartbeat(self, fence: Fence) -> None:
        """The owner renews and learns what the user wants; nobody else does."""
        with self.only_the_owner(fence), self.database.write() as session:
            lease = attempts.renew_lease(session, fence, lease_seconds=LEASE_SECONDS)
            assert lease.cancel_requested == self.known[fence.job_id].asked_to_end

    @rule(fence=fences)
    def look_for_orders(self, fence: Fence) -> None:
        """The same between two heartbeats."""
        with self.only_the_owner(fence), self.database.read() as session:
            assert orders.cancel_requested(session, fence) == self.known[fence.job_id].asked_to_end

    @rule(fence=fences)
    def report(self, fence: Fence) -> None:
        """The owner reports; nobody else does."""
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.record_stage(session, fence, "score", total=3)
            attempts.record_metric(session, fence, "perplexity", float("inf"), {})
            attempts.record_progress(session, fence, "score", 1)

    @rule(fence=fences)
    def succeed(self, fence: Fence) -> None:
        """The owner brings the result."""
        artifact = NewArtifact(prefix=f"jobs/{fence.job_id}/{fence.attempt}/", manifest={}, total_bytes=0)
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.finish_succeeded(session, fence, artifact)
            self.ends(fence, JobState.SUCCEEDED)
            self.known[fence.job_id].artifact = fence.attempt

    @rule(fence=fences)
    def fail(self, fence: Fence) -> None:
        """The owner says that it is no use."""
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.finish_failed(session, fence, FAILURE)
            self.ends(fence, JobState.FAILED)

    @rule(fence=fences)
    def miss(self, fence: Fence) -> None:
        """The owner brings a result that is worse than allowed, and is to be kept."""
        artifact = NewArtifact(prefix=f"jobs/{fence.job_id}/{fence.attempt}/", manifest={}, total_bytes=0)
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.finish_failed(session, fence, FAILURE, kept=artifact)
            self.ends(fence, JobState.FAILED)
            self.known[fence.job_id].artifact = fence.attempt

    @rule(fence=fences)
    def obey(self, fence: Fence) -> None:
        """The owner stops as its user wants."""
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.finish_cancelled(session, fence)
            self.ends(fence, JobState.CANCELLED)

    @rule(fence=fences)
    def falter(self, fence: Fence) -> None:
        """The owner met a fault that may pass."""
        with self.only_the_owner(fence), self.database.write() as session:
            state = attempts.end_lost_attempt(session, fence, FAILURE, POLICY)
            assert state is self.after_a_loss(fence, excused=False)
            self.ends(fence, state)

    @rule(fence=fences)
    def drain(self, fence: Fence) -> None:
        """The owner is told to end, and gives its job back."""
        with self.only_the_owner(fence), self.database.write() as session:
            attempts.requeue(session, fence, cause=GIVEN_BACK, delay_seconds=0)
            self.ends(fence, self.after_a_loss(fence, excused=True))

    @rule(job_id=job_ids)
    def cancel(self, job_id: UUID) -> None:
        """The user wants an end."""
        known = self.known[job_id]
        try:
            with self.database.write() as session:
                repository.request_cancel(session, EVERYONE, job_id)
        except JobFinishedError:
            assert known.state in FINAL_STATES
            return
        assert known.state in ACTIVE_STATES
        known.asked_to_end = True
        if known.state is JobState.QUEUED:
            known.state = JobState.CANCELLED

    @rule(job_id=job_ids)
    def expire(self, job_id: UUID) -> None:
        """The lease of an attempt, if one runs, is over, and the sweeper comes."""
        known = self.known[job_id]
        swept = self.sweep(job_id)
        assert swept == ([] if known.owner is None else [job_id])
        if known.owner is not None:
            self.ends(known.owner, self.after_a_loss(known.owner, excused=False))

    @rule()
    def sweep_in_time(self) -> None:
        """The sweeper comes, and no lease is over."""
        assert self.sweep(None) == []

    @invariant()
    def rows_are_as_known(self) -> None:
        """State, owner, attempt and artifact of every job; a job that waits will be told of."""
        with self.database.read() as session:
            rows = {job.id: job for job in session.scalars(select(Job))}
            artifacts = {row.job_id: row.attempt for row in session.scalars(select(Artifact))}
            told = set(session.scalars(select(OutboxMessage.job_id)))
        assert rows.keys() == self.known.keys()
        for job_id, known in self.known.items():
            row = rows[job_id]
            token = known.owner and known.owner.lease_token
            assert (row.state, row.attempt, row.lease_token) == (known.state, known.attempt, token)
            assert artifacts.get(job_id) == known.artifact
            assert (row.cancel_requested_at is not None) == known.asked_to_end
            assert not (row.state == JobState.QUEUED and known.asked_to_end)
            assert known.counted <= POLICY.max_attempts
            assert job_id in told

    def teardown(self) -> None:
        """Workers that claim and die, and a sweeper, end every job; its story is legal and without gaps."""
        for job_id, known in self.known.items():
            for _ in range(POLICY.max_attempts + 1):
                if known.state in FINAL_STATES:
                    break
                if known.state is JobState.QUEUED:
                    self.claim(job_id)
                self.expire(job_id)
            assert known.state in FINAL_STATES
            self.check_story(job_id)

    def check_story(self, job_id: UUID) -> None:
        with self.database.read() as session:
            query = select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.number)
            events = session.scalars(query).all()
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        claims = [event.attempt for event in events if event.type == "claimed"]
        assert claims == list(range(1, self.known[job_id].attempt + 1))
        states = [JobState.QUEUED, *(AFTER[event.type] for event in events if event.type in AFTER)]
        assert all(Move(*pair) in TRANSITIONS for pair in pairwise(states))
        assert states[-1] is self.known[job_id].state

    def sweep(self, overdue: UUID | None) -> list[UUID]:
        with self.database.write() as session:
            # Time goes by for this job alone.
            past = {"id": overdue}
            session.execute(
                text(
                    "UPDATE jobs SET lease_expires_at = now() - interval '1 s' "
                    "WHERE id = :id AND state = 'running'"
                ),
                past,
            )
            return [ended.job_id for ended in sweeping.end_expired_attempts(session, POLICY)]

    def owns(self, fence: Fence) -> bool:
        return self.known[fence.job_id].owner == fence

    def only_the_owner(self, fence: Fence) -> "Refused":
        return Refused(expected=not self.owns(fence))

    def after_a_loss(self, fence: Fence, *, excused: bool) -> JobState:
        known = self.known[fence.job_id]
        known.counted -= excused
        if known.asked_to_end:
            return JobState.CANCELLED
        return JobState.QUEUED if excused or known.counted < POLICY.max_attempts else JobState.FAILED

    def ends(self, fence: Fence, state: JobState) -> None:
        known = self.known[fence.job_id]
        known.state, known.owner = state, None


class Refused:
    """The body raises LeaseLostError exactly if that is expected."""

    def __init__(self, *, expected: bool) -> None:
        self._expected = expected

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if kind is None:
            assert not self._expected, "a stranger's write was taken"
            return False
        return self._expected and kind is LeaseLostError


@pytest.mark.parametrize("steps", [30])
def test_no_order_of_events_breaks_a_job(database: Database, steps: int) -> None:
    """No impossible state, no two owners, no job without an end, whatever happens in whatever order."""

    class Bound(Lives):
        pass

    Bound.database = database
    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
