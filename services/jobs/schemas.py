"""What the API takes and shows about jobs. Times are UTC, RFC 3339."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ghosted_core.spec import JobSpec
from services.db.models import Job, JobEvent, JobMetric
from services.jobs.states import FINAL_STATES, JobState

LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelText = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00]*$")]


class JobSubmission(JobSpec):
    """A JobSpec, and beside it what does not change the result."""

    labels: dict[LabelName, LabelText] = Field(
        default={}, max_length=32, description="Names and texts of your own, given back as they are."
    )
    deadline_seconds: int | None = Field(
        default=None, ge=1, description="How long the job may run; the operator sets default and limit."
    )

    def to_spec(self) -> JobSpec:
        """The part that decides the result."""
        return JobSpec.model_validate(self.model_dump(exclude={"labels", "deadline_seconds"}))


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
    queue_position: int | None = Field(description="How many jobs begin before this one; null once begun.")
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
    )


def _progress(job: Job) -> ProgressRead | None:
    if job.stage is None:
        return None
    return ProgressRead(stage=job.stage, done=job.stage_done, total=job.stage_total, unit=job.stage_unit)


def read_events(events: "list[JobEvent]", *, after: int, limit: int) -> EventPage:
    """The page of `events`, of which one more than `limit` was asked for."""
    shown = events[:limit]
    return EventPage(
        items=[EventRead.model_validate(event) for event in shown],
        has_more=len(events) > limit,
        next_after=shown[-1].number if shown else after,
    )


def read_metrics(metrics: "list[JobMetric]") -> MetricList:
    """What the API shows of the rows."""
    return MetricList(items=[MetricRead.model_validate(metric) for metric in metrics])
