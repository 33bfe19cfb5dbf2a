import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, InternalError

from ghosted_core.spec import JobSpec
from services.db.models import Artifact, JobEvent, OutboxMessage
from services.db.sessions import Database, WriteSession
from services.errors import LeaseLostError
from services.jobs import attempts, repository, sweeping
from services.jobs.attempts import Fence
from services.jobs.failures import Failure, RetryPolicy
from services.jobs.states import JobState
from tests.integration.services.helpers import (
    ARTIFACT,
    EVERYONE,
    SPEC,
    claim,
    event_types,
    read,
    running,
    submit,
)

FAILURE = Failure("unsafe_model", "the files hold pickles", "Use safetensors.", stage="load")
FENCED: list[Callable[[WriteSession, Fence], object]] = [
    lambda s, f: attempts.renew_lease(s, f, lease_seconds=60),
    lambda s, f: attempts.record_event(s, f, "log", {}),
    lambda s, f: attempts.record_stage(s, f, "score"),
    lambda s, f: attempts.record_progress(s, f, "score", 1),
    lambda s, f: attempts.record_metric(s, f, "perplexity", 1.0, {}),
    lambda s, f: attempts.finish_succeeded(s, f, ARTIFACT),
    lambda s, f: attempts.finish_failed(s, f, FAILURE),
    attempts.finish_cancelled,
    lambda s, f: attempts.requeue(s, f, cause="drain", delay_seconds=0),
]


def test_claim_hands_over_the_spec(database: Database) -> None:
    """What a worker claims is what was submitted, with the deadline counted from the claim."""
    claimed = claim(database, submit(database))
    job = read(database, claimed.fence.job_id)
    assert JobSpec.model_validate(claimed.spec) == SPEC
    assert claimed.spec_digest == SPEC.digest()
    assert job.started_at is not None
    assert claimed.deadline_at - job.started_at == timedelta(seconds=3600)
    assert (job.state, job.attempt) == (JobState.RUNNING, 1)


def test_only_one_of_many_claims_wins(database: Database) -> None:
    """However many workers follow the same wake-up at once, one gets the job."""
    job_id = submit(database)

    def try_to_claim(_: int) -> bool:
        with database.write() as session:
            return attempts.claim(session, job_id, lease_seconds=60, worker="w") is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_to_claim, range(8))) == 1


def test_a_job_that_is_not_there_cannot_be_claimed(database: Database) -> None:
    """A message about an unknown job is a no-op."""
    with database.write() as session:
        assert attempts.claim(session, uuid4(), lease_seconds=60, worker="w") is None


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("flaw", ["attempt", "token", "ended"])
def test_no_write_passes_a_broken_fence(
    database: Database, write: Callable[[WriteSession, Fence], object], flaw: str
) -> None:
    """A wrong attempt, a wrong token or an ended job: the write raises and changes nothing."""
    fence = running(database)
    stale = {
        "attempt": Fence(fence.job_id, fence.attempt + 1, fence.lease_token),
        "token": Fence(fence.job_id, fence.attempt, uuid4()),
        "ended": fence,
    }[flaw]
    if flaw == "ended":
        with database.write() as session:
            attempts.finish_cancelled(session, fence)
    before = event_types(database, fence.job_id)
    with pytest.raises(LeaseLostError), database.write() as session:
        write(session, stale)
    assert event_types(database, fence.job_id) == before


def test_a_late_worker_cannot_overwrite_its_successor(database: Database) -> None:
    """After the lease ran out and another worker took over, the first one's result does not count."""
    first = running(database, lease_seconds=0)
    with database.write() as session:
        sweeping.end_expired_attempts(session, RetryPolicy())
    second = claim(database, first.job_id).fence
    with pytest.raises(LeaseLostError), database.write() as session:
        attempts.finish_succeeded(session, first, ARTIFACT)
    with database.write() as session:
        attempts.finish_succeeded(session, second, ARTIFACT)
    with database.read() as session:
        _, artifact = repository.get_with_artifact(session, EVERYONE, first.job_id)
    assert artifact is not None
    assert artifact.attempt == second.attempt == 2


def test_success_and_artifact_exist_together(database: Database) -> None:
    """If the artifact's row cannot be written, the job has not succeeded either."""
    fence = running(database)
    with database.write() as session:
        session.add(Artifact(job_id=fence.job_id, attempt=1, prefix="p", manifest={}, total_bytes=0))
    with pytest.raises(IntegrityError), database.write() as session:
        attempts.finish_succeeded(session, fence, ARTIFACT)
    assert read(database, fence.job_id).state == JobState.RUNNING


def test_event_numbers_have_no_gaps(database: Database) -> None:
    """Writers at once, some of whom fail, leave the numbers 1, 2, 3, ... without a gap."""
    fence = running(database)

    def write(index: int) -> None:
        with database.write() as session:
            attempts.record_event(session, fence, "log", {"index": index})
            if index % 3 == 0:
                session.rollback()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(30)))
    with database.read() as session:
        numbers = session.scalars(select(JobEvent.number).order_by(JobEvent.number)).all()
    assert list(numbers) == list(range(1, 1 + 2 + 20))
    assert read(database, fence.job_id).event_count == len(numbers)


@pytest.mark.parametrize(
    ("value", "stored", "reason"),
    [
        (3.5, 3.5, None),
        (math.inf, None, "infinite"),
        (-math.inf, None, "negative_infinite"),
        (math.nan, None, "not_a_number"),
        (None, None, "missing"),
    ],
)
def test_metrics_are_values_or_reasons(
    database: Database, value: float | None, stored: float | None, reason: str | None
) -> None:
    """A figure that JSON cannot say is null with the reason, also deep in its detail."""
    fence = running(database)
    with database.write() as session:
        attempts.record_metric(session, fence, "perplexity", value, {"error": math.nan, "text": "a\0b\ud800"})
    with database.read() as session:
        (metric,) = repository.list_metrics(session, repository.get(session, EVERYONE, fence.job_id))
    assert (metric.value, metric.reason, metric.detail["error"]) == (stored, reason, None)


def test_only_the_latest_attempt_is_measured(database: Database) -> None:
    """Figures of an attempt that was lost are not shown."""
    fence = running(database)
    with database.write() as session:
        attempts.record_metric(session, fence, "perplexity", 1.0, {})
        attempts.requeue(session, fence, cause="drain", delay_seconds=0)
    again = claim(database, fence.job_id).fence
    with database.write() as session:
        attempts.record_metric(session, again, "perplexity", 2.0, {})
    with database.read() as session:
        metrics = repository.list_metrics(session, repository.get(session, EVERYONE, fence.job_id))
    assert [metric.value for metric in metrics] == [2.0]


def test_progress_is_a_level(database: Database) -> None:
    """Progress moves the row and leaves no event."""
    fence = running(database)
    with database.write() as session:
        attempts.record_stage(session, fence, "calibrate", total=100, unit="tokens")
    before = event_types(database, fence.job_id)
    with database.write() as session:
        attempts.record_progress(session, fence, "calibrate", 40)
    job = read(database, fence.job_id)
    assert (job.stage, job.stage_done, job.stage_total) == ("calibrate", 40, 100)
    assert event_types(database, fence.job_id) == before


def test_renewal_tells_of_a_cancel(database: Database) -> None:
    """The worker learns with its next heartbeat that the user wants an end."""
    fence = running(database)
    with database.write() as session:
        assert not attempts.renew_lease(session, fence, lease_seconds=60).cancel_requested
        repository.request_cancel(session, EVERYONE, fence.job_id)
        assert attempts.renew_lease(session, fence, lease_seconds=60).cancel_requested


def test_a_failed_job_says_why(database: Database) -> None:
    """The failure holds code, message, advice, stage, attempt and whether to try again."""
    fence = running(database)
    with database.write() as session:
        attempts.finish_failed(session, fence, FAILURE)
    failure = read(database, fence.job_id).failure
    assert failure == {**FAILURE.to_json(), "attempt": 1}


def test_every_lost_attempt_is_followed_until_the_last(database: Database) -> None:
    """Two expired leases bring the job back to the queue; the third ends it as worker_lost."""
    policy = RetryPolicy(max_attempts=3)
    job_id = submit(database)
    seen = []
    for _ in range(3):
        claim(database, job_id, lease_seconds=0)
        with database.write() as session:
            seen += [ended.state for ended in sweeping.end_expired_attempts(session, policy)]
    assert seen == [JobState.QUEUED, JobState.QUEUED, JobState.FAILED]
    failure = read(database, job_id).failure
    assert failure is not None
    assert (failure["code"], failure["attempt"], failure["retryable"]) == ("worker_lost", 3, True)


def test_a_requeued_job_wakes_the_workers_later(database: Database) -> None:
    """The wake-up of a second attempt waits; there is one wake-up a job."""
    fence = running(database, lease_seconds=0)
    with database.write() as session:
        sweeping.end_expired_attempts(session, RetryPolicy(delay_seconds=7))
    with database.read() as session:
        (message,) = session.scalars(select(OutboxMessage)).all()
        event = repository.list_events(session, fence.job_id, after=2, limit=1)[0]
    assert message.sent_at is None
    assert message.available_at - event.at == timedelta(seconds=7)
    assert event.payload["cause"] == "worker_lost"


def test_a_live_lease_is_left_alone(database: Database) -> None:
    """The sweeper touches no job whose worker is in time."""
    fence = running(database)
    with database.write() as session:
        assert sweeping.end_expired_attempts(session, RetryPolicy()) == []
    assert read(database, fence.job_id).state == JobState.RUNNING


def test_a_lost_job_whose_user_wants_an_end_is_cancelled(database: Database) -> None:
    """A cancel that the dead worker never saw still ends the job."""
    fence = running(database, lease_seconds=0)
    with database.write() as session:
        repository.request_cancel(session, EVERYONE, fence.job_id)
        sweeping.end_expired_attempts(session, RetryPolicy())
    assert read(database, fence.job_id).state == JobState.CANCELLED


@pytest.mark.parametrize(("silent_seconds", "state"), [(8, JobState.CANCELLED), (12, JobState.RUNNING)])
def test_nobody_waits_for_the_lease_of_a_silent_worker_to_cancel(
    database: Database, silent_seconds: float, state: JobState
) -> None:
    """Ten seconds without a beat end a job that is to be cancelled, if that is more than is allowed."""
    fence = running(database, lease_seconds=20)
    with database.write() as session:
        repository.request_cancel(session, EVERYONE, fence.job_id)
        end_unheard(session, silent_seconds)
    assert read(database, fence.job_id).state == state


def test_a_silent_worker_keeps_a_job_that_nobody_cancels(database: Database) -> None:
    """For the length of its lease."""
    fence = running(database, lease_seconds=20)
    with database.write() as session:
        end_unheard(session, silent_seconds=8)
    assert read(database, fence.job_id).state == JobState.RUNNING


def end_unheard(session: WriteSession, silent_seconds: float) -> None:
    sweeping.end_unheard_cancellations(
        session, RetryPolicy(), lease_seconds=30, silent_seconds=silent_seconds
    )


def test_a_read_session_cannot_write(database: Database) -> None:
    """PostgreSQL itself refuses to write in a read session."""
    fence = running(database)
    with pytest.raises(InternalError, match="read-only"), database.read() as session:
        attempts.record_event(WriteSession(session), fence, "log", {})
