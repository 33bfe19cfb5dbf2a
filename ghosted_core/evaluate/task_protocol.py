"""How the process that runs the harness is spoken to: one JSON line in, JSON lines out. Torch-free."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ghosted_core.batching import LOGIT_BYTES
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.spec import HarnessTask

LINE_LIMIT_BYTES = 1 << 20


class Message(BaseModel):
    """A value that crosses the pipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Subject(Message):
    """The models to run: `source` is loaded, as a checkpoint of ours or as the dense model of a job.

    Of a job, the other variants are made of it as the job made them: `removed` of `layer_count` layers
    go, and the tensors in `repair` (a safetensors file, see `repair_tensors`) take their places; those in
    `trained` in the variant that was finetuned.
    """

    source: ModelSource
    is_checkpoint: bool
    dtype: str
    device: str
    variants: tuple[str, ...]
    layer_count: int = 0
    removed: tuple[int, ...] = ()
    repair: Path | None = None
    trained: Path | None = None


class TaskRequest(Message):
    """What to do: load all `tasks` from files in the folder `data`, then run them.

    Without a `subject` the tasks are loaded, what is known of them is told, and that is all.
    """

    tasks: tuple[HarnessTask, ...]
    data: Path
    subject: Subject | None
    logit_bytes: int = LOGIT_BYTES


class Ready(Message):
    """All tasks are loaded; they have `items` in all, all variants together."""

    kind: Literal["ready"] = "ready"
    items: int


class Known(Message):
    """A task is loaded; `metrics` are all that it will have, None where only functions of its own know."""

    kind: Literal["known"] = "known"
    task: str
    metrics: tuple[str, ...] | None


class Progress(Message):
    """So many items are done."""

    kind: Literal["progress"] = "progress"
    done: int


class Score(Message):
    """A figure of a task; `standard_error` is None where the harness has none."""

    kind: Literal["score"] = "score"
    variant: str
    task: str
    metric: str
    value: float
    standard_error: float | None
    detail: dict[str, Any]


class Refused(Message):
    """The tasks cannot be run; the words are for the user."""

    kind: Literal["refused"] = "refused"
    code: str
    message: str
    advice: str


Said = Ready | Known | Progress | Score
SAID: TypeAdapter[Said | Refused] = TypeAdapter(Annotated[Said | Refused, Field(discriminator="kind")])
