"""The service's answers as frozen values. Fields that a newer service adds are ignored."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Answer(BaseModel):
    """Something that the service answered."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Failure(Answer):
    """Why a job failed, and what to try."""

    code: str
    message: str
    advice: str
    stage: str | None
    attempt: int
    retryable: bool


class Progress(Answer):
    """How far the running stage is: `done` of `total`, counted in `unit`."""

    stage: str
    done: int
    total: int | None
    unit: str | None


class Job(Answer):
    """A job at the time of asking."""

    id: UUID
    state: State
    done: bool
    spec: dict[str, Any]
    spec_digest: str
    labels: dict[str, str]
    deadline_seconds: int
    attempt: int
    queue_position: int | None
    progress: Progress | None
    failure: Failure | None
    event_count: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_seen_at: datetime | None
    cancel_requested_at: datetime | None


class JobPage(Answer):
    """Some jobs, newest first; `next_after` leads to the next page."""

    items: tuple[Job, ...]
    has_more: bool
    next_after: UUID | None


class Event(Answer):
    """Something that happened to a job; numbers run 1, 2, 3, ..."""

    number: int
    attempt: int
    type: str
    payload: dict[str, Any]
    at: datetime


class EventPage(Answer):
    """Some events, in order; `next_after` leads to what follows."""

    items: tuple[Event, ...]
    has_more: bool
    next_after: int


class Metric(Answer):
    """A figure of the result; without a value, `reason` says why."""

    name: str
    value: float | None
    reason: str | None
    detail: dict[str, Any]
    at: datetime


class MetricList(Answer):
    """All figures of a job."""

    items: tuple[Metric, ...]


class ArtifactFile(Answer):
    """A file of the artifact, and a link that works for a while."""

    path: str
    size_bytes: int
    sha256: str
    url: str


class Artifact(Answer):
    """The result of a job."""

    job_id: UUID
    attempt: int
    total_bytes: int
    created_at: datetime
    expires_at: datetime | None
    links_expire_at: datetime
    summary: dict[str, Any]
    files: tuple[ArtifactFile, ...]
