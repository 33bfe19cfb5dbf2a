"""What a worker may do to a job: claim it, report on it under the fence, finish it.

Every write names the attempt and its lease token. A worker that lost its lease changes nothing
and gets a LeaseLostError. All times are the database's own: one clock for all machines.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, func, insert, select

from services.db.models import Artifact, Job, JobMetric
from services.db.sessions import WriteSession
from services.errors import LeaseLostError
from services.jobs.excuses import DATABASE_LOST, MOST_EXCUSED, excused_attempts
from services.jobs.failures import Failure, RetryPolicy, state_after_lost_attempt
from services.jobs.rows import NO_LEASE, NO_STAGE, add_wake_up, change, change_with_event, move, seconds
from services.jobs.states import JobState
from services.jobs.values import figure, storable
from services.tallies import count_stage


@dataclass(frozen=True)
class Fence:
    """The right to write to a job: who holds it names the attempt and the token of its lease."""

    job_id: UUID
    attempt: int
    lease_token: UUID

    def holds(self) -> tuple[ColumnElement[bool], ...]:
        """The condition under which a write counts."""
        return (
            Job.id == self.job_id,
            Job.attempt == self.attempt,
            Job.lease_token == self.lease_token,
            Job.state == JobState.RUNNING,
        )


@dataclass(frozen=True)
class Claimed:
    """A job that is now this worker's: what to do, until when, and the fence to write under.

    `asked_at` is when it asked, by its own monotonic clock: the lease is never longer than from there.
    """

    fence: Fence
    owner_id: UUID | None
    spec: Mapping[str, Any]
    spec_digest: str
    lease_expires_at: datetime
    deadline_at: datetime
    asked_at: float
    # The trace that the submission began.
    traceparent: str | None = None
    # As it lies in the row: encrypted.
    hub_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Lease:
    """What a renewal learnt: until when the lease now holds, and whether the user wants an end."""

    expires_at: datetime
    cancel_requested: bool


@dataclass(frozen=True)
class NewArtifact:
    """What was uploaded and verified: where it lies, what it holds, how long it is kept."""

    prefix: str
    manifest: Mapping[str, Any]
    total_bytes: int
    keep_days: int | None = None


def claim(
    session: WriteSession, job_id: UUID, *, lease_seconds: float, worker: str, token: UUID | None = None
) -> Claimed | None:
    """The queued job runs, as a new attempt under a fresh lease; None if it is not to be had.

    Who never heard whether a claim was committed asks again with the same `token`, and has what it got.
    """
    asked_at = time.monotonic()
    token = token or uuid4()
    lease = {
        "lease_token": token,
        "lease_expires_at": func.now() + seconds(lease_seconds),
        "last_seen_at": func.now(),
    }
    begun = {"attempt": Job.attempt + 1, "started_at": func.now(), "worker": worker}
    values = {**NO_STAGE, **begun, **lease}
    job = move(session, (Job.id == job_id,), JobState.QUEUED, JobState.RUNNING, values, {"worker": worker})
    job = job or change(session, (Job.id == job_id, Job.lease_token == token), lease)
    return None if job is None else _claimed(job, token, asked_at)


def _claimed(job: Job, token: UUID, asked_at: float) -> Claimed:
    if job.lease_expires_at is None or job.started_at is None:
        raise LeaseLostError(f"job {job.id} was claimed without a lease")
    return Claimed(
        fence=Fence(job.id, job.attempt, token),
        owner_id=job.owner_id,
        spec=job.spec,
        spec_digest=job.spec_digest,
        lease_expires_at=job.lease_expires_at,
        deadline_at=job.started_at + timedelta(seconds=job.deadline_seconds),
        traceparent=job.traceparent,
        hub_token=job.hub_token,
        asked_at=asked_at,
    )


def renew_lease(session: WriteSession, fence: Fence, *, lease_seconds: float) -> Lease:
    """The lease holds for `lease_seconds` from now.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    values = {"lease_expires_at": func.now() + seconds(lease_seconds), "last_seen_at": func.now()}
    job = _held(fence, change(session, fence.holds(), values))
    if job.lease_expires_at is None:
        raise LeaseLostError(f"job {job.id} runs without a lease")
    return Lease(job.lease_expires_at, job.cancel_requested_at is not None)


def record_event(session: WriteSession, fence: Fence, event: str, payload: Mapping[str, Any]) -> int:
    """The job has one event more; returns its number.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    values = {"last_seen_at": func.now()}
    job = change_with_event(session, fence.holds(), values, event=event, payload=payload)
    number = _held(fence, job).event_count
    if event == "stage_finished":
        count_stage(session, payload["stage"], payload["seconds"])
    return number


def record_stage(
    session: WriteSession, fence: Fence, stage: str, *, total: int | None = None, unit: str = "tokens"
) -> int:
    """The job is at the beginning of `stage`, which counts `total` of `unit`; returns the event's number.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    values = {
        "stage": stage,
        "stage_done": 0,
        "stage_total": total,
        "stage_unit": unit,
        "stage_started_at": func.now(),
        "last_seen_at": func.now(),
    }
    payload = {"stage": stage, "total": total, "unit": unit}
    job = change_with_event(session, fence.holds(), values, event="stage_started", payload=payload)
    return _held(fence, job).event_count


def record_progress(session: WriteSession, fence: Fence, stage: str, done: int) -> None:
    """`done` of the stage's total is behind the job. No event: progress is a level, not a history.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    values = {"stage": stage, "stage_done": done, "last_seen_at": func.now()}
    _held(fence, change(session, fence.holds(), values))


def record_metric(
    session: WriteSession, fence: Fence, name: str, value: float | None, detail: Mapping[str, Any]
) -> int:
    """The job has one figure more, and an event with it; returns the event's number.

    A value that JSON cannot say (infinite, not a number) is stored as null with the reason.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    measured = figure(value)
    payload = {"name": name, "value": measured.value, "reason": measured.reason, "detail": dict(detail)}
    number = record_event(session, fence, "metric", payload)
    session.execute(
        insert(JobMetric).values(
            job_id=fence.job_id,
            number=number,
            attempt=fence.attempt,
            name=name,
            value=measured.value,
            reason=measured.reason,
            detail=storable(dict(detail)),
        )
    )
    return number


def finish_succeeded(session: WriteSession, fence: Fence, artifact: NewArtifact) -> None:
    """The job has succeeded and owns the artifact: both or neither, in the caller's transaction.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    payload = {"total_bytes": artifact.total_bytes}
    _finish(session, fence, JobState.SUCCEEDED, {}, payload)
    _own(session, fence, artifact)


def _own(session: WriteSession, fence: Fence, artifact: NewArtifact) -> None:
    """The job has the artifact; its end is written in the same transaction."""
    expires_at = None if artifact.keep_days is None else func.now() + seconds(artifact.keep_days * 86400)
    session.execute(
        insert(Artifact).values(
            job_id=fence.job_id,
            attempt=fence.attempt,
            prefix=artifact.prefix,
            manifest=storable(dict(artifact.manifest)),
            total_bytes=artifact.total_bytes,
            expires_at=expires_at,
        )
    )


def finish_failed(
    session: WriteSession, fence: Fence, failure: Failure, kept: NewArtifact | None = None
) -> None:
    """The job has failed for good, and says why; what it made is `kept` where its spec asks for that.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    told = storable(replace(failure, attempt=fence.attempt).to_json())
    payload = told if kept is None else {**told, "total_bytes": kept.total_bytes}
    _finish(session, fence, JobState.FAILED, {"failure": told}, payload)
    if kept is not None:
        _own(session, fence, kept)


def finish_cancelled(session: WriteSession, fence: Fence, *, reason: str = "requested") -> None:
    """The job has ended because its user wanted so.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    _finish(session, fence, JobState.CANCELLED, {}, {"reason": reason})


def requeue(session: WriteSession, fence: Fence, *, cause: str, delay_seconds: float) -> None:
    """The job waits for another attempt, and the workers will be told after `delay_seconds`.

    If its user wants an end, it is cancelled instead: nobody obeys for a job that waits.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    if _held_locked(session, fence).cancel_requested_at is not None:
        finish_cancelled(session, fence)
        return
    values = {**NO_LEASE, **NO_STAGE}
    payload = {"cause": cause, "delay_seconds": delay_seconds}
    job = move(session, fence.holds(), JobState.RUNNING, JobState.QUEUED, values, payload)
    add_wake_up(session, _held(fence, job), delay_seconds=delay_seconds)


def end_lost_attempt(
    session: WriteSession,
    fence: Fence,
    failure: Failure,
    policy: RetryPolicy,
    *,
    cancel_requested: bool = False,
    excused: bool = False,
) -> JobState:
    """The attempt is over without a result: the job waits for another, or has ended. Returns its state.

    `excused`: the job had no part in it. Such attempts do not count towards the most allowed, up to
    `MOST_EXCUSED` of them.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    asked_to_end = _held_locked(session, fence).cancel_requested_at is not None
    excused_before = excused_attempts(session, fence.job_id)
    excused = excused and excused_before < MOST_EXCUSED
    counted = fence.attempt - excused_before - excused
    target = state_after_lost_attempt(
        counted, cancel_requested=cancel_requested or asked_to_end, policy=policy
    )
    if target is JobState.CANCELLED:
        finish_cancelled(session, fence)
    elif target is JobState.FAILED:
        finish_failed(session, fence, failure)
    else:
        cause = DATABASE_LOST if excused else failure.code
        requeue(session, fence, cause=cause, delay_seconds=policy.delay_after(max(counted, 1)))
    return target


def _held_locked(session: WriteSession, fence: Fence) -> Job:
    query = select(Job).where(*fence.holds()).with_for_update().execution_options(populate_existing=True)
    return _held(fence, session.scalars(query).one_or_none())


def _finish(
    session: WriteSession,
    fence: Fence,
    target: JobState,
    values: Mapping[str, Any],
    payload: Mapping[str, Any],
) -> None:
    ending = {**NO_LEASE, **values, "finished_at": func.now()}
    _held(fence, move(session, fence.holds(), JobState.RUNNING, target, ending, payload))


def _held(fence: Fence, job: Job | None) -> Job:
    if job is None:
        raise LeaseLostError(f"attempt {fence.attempt} of job {fence.job_id} no longer holds its lease")
    return job
