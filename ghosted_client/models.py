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
    stage: str | None = None
    attempt: int
    retryable: bool


class Progress(Answer):
    """How far the running stage is: `done` of `total`, counted in `unit`.

    `eta_seconds` is the rest of the stage at its pace so far.
    """

    stage: str
    done: int
    total: int | None
    unit: str | None
    eta_seconds: float | None = None


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
    retry_of: UUID | None = None


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


class LogLine(Answer):
    """A line of the job's log."""

    number: int
    attempt: int
    level: str
    message: str
    at: datetime


class LogTail(Answer):
    """The end of a job's log, oldest line first; `truncated` says that older lines were left out."""

    items: tuple[LogLine, ...]
    truncated: bool


class MetricList(Answer):
    """All figures of a job."""

    items: tuple[Metric, ...]


class ArtifactFile(Answer):
    """A file of the artifact, and a link that works for a while."""

    path: str
    size_bytes: int
    sha256: str
    url: str


class Snippet(Answer):
    """A text that runs as it stands beside the pulled folder; `requires` is what pip has to install."""

    purpose: str
    title: str
    language: str
    requires: tuple[str, ...]
    code: str


class Artifact(Answer):
    """The result of a job; one that `missed_gate` is worse than its spec allows, and was to be kept.

    `folder` is how the snippets call the folder that it was pulled into.
    """

    job_id: UUID
    attempt: int
    total_bytes: int
    missed_gate: bool = False
    created_at: datetime
    expires_at: datetime | None
    links_expire_at: datetime
    summary: dict[str, Any]
    files: tuple[ArtifactFile, ...]
    folder: str = "artifact"
    snippets: tuple[Snippet, ...] = ()


class ModelSizes(Answer):
    """The model that a submission names."""

    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    parameters: int
    dtype: str
    commit: str | None = None
    max_positions: int | None = None


class LayerChoice(Answer):
    """What a strategy chooses among: layers, or runs by their first layer."""

    kind: str
    choices: tuple[int, ...]


class MemoryNeeded(Answer):
    """Bytes of memory by what needs them."""

    peak_bytes: int
    weights_bytes: int
    scoring_bytes: int
    calibration_bytes: int
    finetune_bytes: int = 0
    evaluation_bytes: int
    statistics_bytes: int


class DiskNeeded(Answer):
    """Bytes of the result, and of what is kept meanwhile."""

    checkpoint_bytes: int
    scratch_bytes: int
    peak_bytes: int


class TimeNeeded(Answer):
    """A rough guess of the seconds that the work takes."""

    cpu_seconds: float
    gpu_seconds: float


class Needs(Answer):
    """Sizes before and after, and what the job needs."""

    dtype: str
    parameters_before: int
    parameters_after: int
    operator_parameters: int
    bytes_before: int
    bytes_after: int
    memory: MemoryNeeded
    disk: DiskNeeded
    time: TimeNeeded


class Caution(Answer):
    """Something about a submission that is allowed, but worth knowing."""

    code: str
    detail: str
    field: str | None = None


class Validation(Answer):
    """What a submission would do and need. What is None cannot be known before the job looks."""

    spec: dict[str, Any]
    spec_digest: str
    deadline_seconds: int
    model: ModelSizes | None
    layers_removed: int | None
    removed: tuple[int, ...] | None
    kept: tuple[int, ...] | None
    from_earlier: bool = False
    candidates: LayerChoice | None
    estimate: Needs | None
    warnings: tuple[Caution, ...]
