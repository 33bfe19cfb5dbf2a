"""What a running job tells the world, and the port through which it does."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


class Stage(StrEnum):
    """The steps of a job, in the order in which they run; `finetune` only where it is asked for."""

    LOAD = "load"
    SCORE = "score"
    CALIBRATE = "calibrate"
    SOLVE = "solve"
    PATCH = "patch"
    FINETUNE = "finetune"
    EVALUATE = "evaluate"
    SAVE = "save"


@dataclass(frozen=True)
class StageStarted:
    """A stage began; `total` counts its `unit` where that is known."""

    stage: Stage
    total: int | None = None
    unit: str = "tokens"


@dataclass(frozen=True)
class StageProgressed:
    """`done` of the stage's total is behind us."""

    stage: Stage
    done: int


@dataclass(frozen=True)
class StageFinished:
    """A stage ended well, after `seconds`, with at most `peak_memory_bytes` in use at a time."""

    stage: Stage
    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class MetricMeasured:
    """A named figure of the result; `detail` says on what and with what error."""

    name: str
    value: float
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LayersChosen:
    """Which of the model's `layer_count` layers go; `scores` say why, as `criteria.LayerScores` has them."""

    removed: tuple[int, ...]
    layer_count: int
    scores: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Logged:
    """A sentence for the job's log.

    `output` is what a foreign program printed: for whoever runs the machine, not for users of a service.
    """

    message: str
    level: str = "info"
    output: str = ""

    def __str__(self) -> str:
        """All of it."""
        return f"{self.message}\n{self.output}" if self.output else self.message


Event = StageStarted | StageProgressed | StageFinished | MetricMeasured | LayersChosen | Logged


def event_to_json(event: Event) -> dict[str, Any]:
    """`event` as plain JSON values, its kind under `event`."""
    return {"event": type(event).__name__, **asdict(event)}


@runtime_checkable
class Recorder(Protocol):
    """Where a job's events go: a terminal, a pipe, a database."""

    def record(self, event: Event) -> None:
        """Take note of `event`; must be quick, it is called between batches."""


class NullRecorder:
    """Forgets everything."""

    def record(self, event: Event) -> None:
        """Do nothing."""


class MemoryRecorder:
    """Keeps every event in order; for tests and for callers that look afterwards."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Append `event`."""
        self.events.append(event)


@dataclass(frozen=True)
class TeeRecorder:
    """Passes each event on to several recorders."""

    recorders: tuple[Recorder, ...]

    def record(self, event: Event) -> None:
        """Pass `event` on, in order."""
        for recorder in self.recorders:
            recorder.record(event)


@runtime_checkable
class Meter(Protocol):
    """Measures a stage: see `ghosted_core.meter`."""

    def restart(self) -> None:
        """Begin anew."""

    def seconds(self) -> float:
        """Wall-clock seconds since `restart`."""

    def peak_memory_bytes(self) -> int:
        """Highest memory use since `restart`."""


class StageScope:
    """Handed to the code of a stage, so that it can say how far it is."""

    def __init__(self, stage: Stage, recorder: Recorder) -> None:
        self.stage = stage
        self.recorder = recorder
        self.done = 0

    def advance(self, amount: int) -> None:
        """`amount` more of the stage's unit is done."""
        self.done += amount
        self.recorder.record(StageProgressed(self.stage, self.done))

    def track(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield token batches, advancing by the tokens of each once it has been worked on."""
        for batch in batches:
            yield batch
            self.advance(batch.numel())


@contextmanager
def stage(
    name: Stage, recorder: Recorder, meter: Meter, *, total: int | None = None, unit: str = "tokens"
) -> Iterator[StageScope]:
    """Record start and, unless the body raises, end of a stage."""
    meter.restart()
    recorder.record(StageStarted(name, total, unit))
    yield StageScope(name, recorder)
    recorder.record(StageFinished(name, meter.seconds(), meter.peak_memory_bytes()))
