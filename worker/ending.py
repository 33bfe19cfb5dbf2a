"""How an attempt that brought no result is written down."""

from services.errors import DeadlineExceededError, LeaseLostError
from services.jobs import attempts
from services.jobs.failures import Failure, RetryPolicy, failure_of
from worker.config import WorkerSettings
from worker.errors import StopReason
from worker.ledger import Ledger


def conclude(ledger: Ledger, failure: Failure, settings: WorkerSettings) -> None:
    """The job waits for another attempt if that may help and one is left, else it has failed.

    Raises:
        LeaseLostError: another attempt owns the job.
    """
    if not failure.retryable:
        ledger.write(lambda session, fence: attempts.finish_failed(session, fence, failure))
        return
    policy = RetryPolicy(settings.max_attempts, settings.retry_delay_seconds)
    ledger.write(
        lambda session, fence: attempts.end_lost_attempt(
            session, fence, failure, policy, cancel_requested=False
        )
    )


def conclude_stopped(ledger: Ledger, reason: StopReason) -> None:
    """The job has ended, or waits for another worker, as `reason` asks.

    Raises:
        LeaseLostError: `reason` says so, or it turns out.
    """
    if reason is StopReason.CANCELLED:
        ledger.write(attempts.finish_cancelled)
    elif reason is StopReason.DEADLINE:
        late = DeadlineExceededError("the job ran longer than its deadline allows")
        failure = failure_of(late, stage=ledger.stage)
        ledger.write(lambda session, fence: attempts.finish_failed(session, fence, failure))
    elif reason is StopReason.SHUTDOWN:
        ledger.write(
            lambda session, fence: attempts.requeue(session, fence, cause="worker_stopped", delay_seconds=0)
        )
    else:
        raise LeaseLostError("another attempt may own the job")
