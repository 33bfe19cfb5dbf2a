"""How a job's process and its supervisor speak: one JSON request, then JSON lines, then an exit code.

A line holds an event of the recorder, a question or offer about what stages found, or as the last one
`result` or `error`. Only a question has an answer, a line the other way. Torch-free.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_serializer,
)

from ghosted_core.errors import GhostedError
from ghosted_core.recorder import (
    Event,
    LayersChosen,
    Logged,
    MetricMeasured,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from ghosted_core.registry import NOTHING, Registry
from ghosted_core.spec import JobSpec
from worker.errors import RunnerCrashedError

LINE_LIMIT_BYTES = 1 << 20
STAGE_KEY = r"^[0-9a-f]{64}$"
StageKey = Annotated[str, StringConstraints(pattern=STAGE_KEY)]


class ExitCode(IntEnum):
    """What the end of a job's process means. Any other is a crash, or a kill if negative."""

    OK = 0
    REFUSED = 10
    TRANSIENT = 20


class Message(BaseModel):
    """A value that crosses the pipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunRequest(Message):
    """What the runner is to do."""

    spec: JobSpec
    out: Path
    cache: Path
    device: str
    stages: Path
    # The operator's aliases.
    registry: Registry = NOTHING
    # The items of benchmark tasks.
    task_data: Path | None = None
    # The user's own texts, by the ids of their uploads, as files in the job's folder.
    uploads: dict[UUID, Path] = {}
    # For the Hub and nobody else. It crosses the pipe in the clear, and shows in no representation.
    hub_token: SecretStr | None = None

    @field_serializer("hub_token", when_used="json")
    def _in_the_clear(self, token: SecretStr | None) -> str | None:
        return None if token is None else token.get_secret_value()


class VerifyRequest(Message):
    """What the verifier is to look at."""

    folder: Path
    device: str


class Wanted(Message):
    """What an earlier run kept under this key is asked for."""

    wanted: StageKey


class Offered(Message):
    """What a stage found lies in the stages' folder under this key, for later runs."""

    offered: StageKey


class Answer(Message):
    """Whether what was wanted now lies in the stages' folder."""

    found: bool


class Result(Message):
    """The work is done."""


class Fault(Message):
    """The work cannot be done; the words are for the user."""

    code: str
    message: str
    advice: str
    retryable: bool

    @classmethod
    def of(cls, error: GhostedError) -> "Fault":
        """`error` as it crosses the pipe."""
        return cls(code=error.code, message=error.message, advice=error.hint, retryable=error.retryable)


class Moved(Message):
    """`done` of `total` bytes have arrived; the first of a stage begins it, which ends the one before."""

    stage: Literal["upload", "verify"]
    done: int
    total: int


Said = Event | Moved
_EVENTS: Mapping[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (StageStarted, StageProgressed, StageFinished, MetricMeasured, LayersChosen, Logged, Moved)
}


@dataclass(frozen=True)
class Ended:
    """The last thing that a process said, if it said anything, and its exit code (negative: a signal)."""

    last: Result | Fault | None
    exit_code: int


def read_line(line: bytes) -> Said | Wanted | Offered | Result | Fault:
    """What a line says.

    Raises:
        RunnerCrashedError: it is none of ours.
    """
    try:
        body = json.loads(line)
        if "event" in body:
            return _read_event(body)
        for kind, name in ((Wanted, "wanted"), (Offered, "offered")):
            if name in body:
                return kind.model_validate(body)
        return Result() if "result" in body else Fault.model_validate(body["error"])
    except (ValueError, ValidationError, KeyError, TypeError) as error:
        raise RunnerCrashedError("the job's process wrote a line that is not of the protocol") from error


def _read_event(body: Any) -> Said:
    kind = body.pop("event")
    event: Said = _EVENTS[kind].validate_python(body)
    return event
