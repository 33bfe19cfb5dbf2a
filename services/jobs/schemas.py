"""What the API shows of jobs. Times are UTC, RFC 3339."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.db.models import Job, JobEvent, JobMetric
from services.jobs.states import FINAL_STATES, JobState

# A longest answer, whatever the lines hold.
LOG_CHARACTERS = 256 * 1024


class Shown(BaseModel):
    """Something that the API answers with."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class FailureRead(Shown):
    """Why a job failed, and what to try."""

    code: str
    message: str
    advice: str
    stage: str | None = None
    attempt: int
    retryable: bool = Field(description="Whether the same request may succeed another time.")


class ProgressRead(Shown):
    """How far the running stage is."""

    stage: str
    done: int
    total: int | None
    unit: str | None
    eta_seconds: float | None = Field(
        description="Seconds from `last_seen_at` to the end of the stage, at its pace so far."
    )


class JobRead(Shown):
    """A job as its owner sees it."""

    id: UUID
    state: JobState
    done: bool = Field(description="Whether the job has ended, well or not.")
    spec: dict[str, Any]
    spec_digest: str
    labels: dict[str, str]
    deadline_seconds: int
    attempt: int = Field(description="How often a worker has begun.")
    queue_position: int | None = Field(
        description="How many jobs begin before this one; 1000 stands for 1000 or more; null once begun."
    )
    waiting_reason: str | None = Field(
        default=None, description="Why no worker that is there can take the job; null if one can."
    )
    progress: ProgressRead | None
    failure: FailureRead | None
    event_count: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_seen_at: datetime | None = Field(description="When a worker last reported on the job.")
    cancel_requested_at: datetime | None
    retry_of: UUID | None = Field(description="The job of which this one is a clone.")


class JobPage(Shown):
    """Some jobs, newest first."""

    items: list[JobRead]
    has_more: bool
    next_after: UUID | None = Field(description="Give this as `after` for the next page.")


class EventRead(Shown):
    """Something that happened to a job; numbers run 1, 2, 3, ... without gaps."""

    number: int
    attempt: int
    type: str
    payload: dict[str, Any]
    at: datetime


class EventPage(Shown):
    """Some events, in order."""

    items: list[EventRead]
    has_more: bool
    next_after: int = Field(description="Give this as `after` for what follows.")


class MetricRead(Shown):
    """A figure of the result; `reason` says why there is no value, e.g. "infinite"."""

    name: str
    value: float | None
    reason: str | None
    detail: dict[str, Any]
    at: datetime


class LogLine(Shown):
    """A line of the log; `number` is that of its event."""

    number: int
    attempt: int
    at: datetime
    level: str
    message: str


class LogTail(Shown):
    """The end of a job's log, oldest line first."""

    items: list[LogLine]
    truncated: bool = Field(description="Whether older lines were left out.")


class MetricList(Shown):
    """All figures of the latest attempt."""

    items: list[MetricRead]


def read_job(job: Job, queue_position: int | None, waiting_reason: str | None = None) -> JobRead:
    """What the API shows of a row."""
    return JobRead(
        id=job.id,
        state=JobState(job.state),
        done=job.state in FINAL_STATES,
        spec=job.spec,
        spec_digest=job.spec_digest,
        labels=job.labels,
        deadline_seconds=job.deadline_seconds,
        attempt=job.attempt,
        queue_position=queue_position,
        waiting_reason=waiting_reason,
        progress=_progress(job),
        failure=None if job.failure is None else FailureRead.model_validate(job.failure),
        event_count=job.event_count,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_seen_at=job.last_seen_at,
        cancel_requested_at=job.cancel_requested_at,
        retry_of=job.retry_of,
    )


def _progress(job: Job) -> ProgressRead | None:
    if job.stage is None:
        return None
    return ProgressRead(
        stage=job.stage,
        done=job.stage_done,
        total=job.stage_total,
        unit=job.stage_unit,
        eta_seconds=_eta_seconds(job),
    )


def _eta_seconds(job: Job) -> float | None:
    # Of times in the row only, so that a job which did not change is shown the same each time.
    if (
        job.stage_total is None
        or job.stage_done <= 0
        or job.stage_started_at is None
        or job.last_seen_at is None
    ):
        return None
    left = max(job.stage_total - job.stage_done, 0)
    elapsed = (job.last_seen_at - job.stage_started_at).total_seconds()
    return round(max(elapsed, 0) * left / job.stage_done, 1)


def read_events(events: Sequence[JobEvent], *, after: int, limit: int) -> EventPage:
    """The page of `events`, of which one more than `limit` was asked for."""
    shown = events[:limit]
    return EventPage(
        items=[EventRead.model_validate(event) for event in shown],
        has_more=len(events) > limit,
        next_after=shown[-1].number if shown else after,
    )


def read_log(events: Sequence[JobEvent], *, lines: int) -> LogTail:
    """The last `lines` of `events`, of which one more was asked for; of them, what fits LOG_CHARACTERS."""
    shown: list[LogLine] = []
    room = LOG_CHARACTERS
    for event in reversed(events[-lines:]):
        line = _log_line(event)
        room -= len(line.message)
        if room < 0:
            break
        shown.append(line)
    return LogTail(items=shown[::-1], truncated=len(shown) < len(events))


def _log_line(event: JobEvent) -> LogLine:
    level, message = (str(event.payload.get(name, "")) for name in ("level", "message"))
    return LogLine(number=event.number, attempt=event.attempt, at=event.at, level=level, message=message)


def read_metrics(metrics: Sequence[JobMetric]) -> MetricList:
    """What the API shows of the rows."""
    return MetricList(items=[MetricRead.model_validate(metric) for metric in metrics])
