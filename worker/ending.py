"""How an attempt ends is written down. A cancellation that was accepted before always wins."""

from services.db.sessions import WriteSession
from services.errors import DeadlineExceededError, LeaseLostError, WorkerLostError
from services.jobs import attempts, orders
from services.jobs.attempts import Fence, NewArtifact
from services.jobs.excuses import GIVEN_BACK, may_be_excused
from services.jobs.failures import Failure, RetryPolicy, failure_of
from worker.config import WorkerSettings
from worker.errors import StoppedError, StopReason
from worker.ledger import Ledger


def conclude_delivered(ledger: Ledger, artifact: NewArtifact, missed: Failure | None = None) -> None:
    """The job owns the artifact, and has succeeded, or failed because that `missed` its gate.

    Raises:
        StoppedError: it was cancelled before.
        LeaseLostError: another attempt owns the job.
    """

    def finish(session: WriteSession, fence: Fence) -> None:
        if orders.lock_and_look(session, fence):
            raise StoppedError(StopReason.CANCELLED)
        if missed is None:
            attempts.finish_succeeded(session, fence, artifact)
        else:
            attempts.finish_failed(session, fence, missed, kept=artifact)

    ledger.write(finish)


def conclude(ledger: Ledger, failure: Failure, settings: WorkerSettings) -> None:
    """The job waits for another attempt if that may help and one is left, else it has failed.

    Raises:
        LeaseLostError: another attempt owns the job.
    """
    policy = _policy(settings)

    def finish(session: WriteSession, fence: Fence) -> None:
        if orders.lock_and_look(session, fence):
            attempts.finish_cancelled(session, fence)
        elif failure.retryable:
            attempts.end_lost_attempt(session, fence, failure, policy, cancel_requested=False)
        else:
            attempts.finish_failed(session, fence, failure)

    ledger.write(finish)


def conclude_stopped(ledger: Ledger, reason: StopReason, settings: WorkerSettings) -> None:
    """The job has ended, or waits for another worker, as `reason` asks.

    Raises:
        LeaseLostError: `reason` says so, or it turns out.
    """
    if reason is StopReason.LEASE_LOST:
        raise LeaseLostError("another attempt may own the job")

    def finish(session: WriteSession, fence: Fence) -> None:
        if orders.lock_and_look(session, fence) or reason is StopReason.CANCELLED:
            attempts.finish_cancelled(session, fence)
        elif reason is StopReason.DEADLINE:
            attempts.finish_failed(session, fence, _too_late(ledger.stage))
        else:
            _give_back(session, fence, _policy(settings), ledger.stage)

    ledger.write(finish)


def _give_back(session: WriteSession, fence: Fence, policy: RetryPolicy, stage: str | None) -> None:
    """The job waits for another worker at once; given back too often, this attempt counts as lost."""
    if may_be_excused(session, fence.job_id):
        attempts.requeue(session, fence, cause=GIVEN_BACK, delay_seconds=0)
        return
    lost = WorkerLostError(
        "the workers of this job were told to end again and again, or it brought them down"
    )
    attempts.end_lost_attempt(session, fence, failure_of(lost, stage=stage), policy)


def _policy(settings: WorkerSettings) -> RetryPolicy:
    return RetryPolicy(settings.max_attempts, settings.retry_delay_seconds)


def _too_late(stage: str | None) -> Failure:
    return failure_of(DeadlineExceededError("the job ran longer than its deadline allows"), stage=stage)
