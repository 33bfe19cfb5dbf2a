"""When a job did what: its attempts, and the stages of each, from the job's events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ghosted_core.recorder import Stage
from services.db.models import JobEvent
from services.jobs.states import Transition

FINETUNE = "finetune"
# All stages in their order; a job without need of one leaves it out.
STAGES = (*(stage.value for stage in Stage), "upload", "verify")
# Which events tell of attempts and stages.
STAGE_STARTED, STAGE_FINISHED = "stage_started", "stage_finished"
TOLD_BY = (STAGE_STARTED, STAGE_FINISHED, *Transition)
ENDINGS = frozenset({Transition.REQUEUED, Transition.SUCCEEDED, Transition.FAILED, Transition.CANCELLED})


@dataclass(frozen=True)
class StageSpan:
    """A stage of an attempt; `seconds` is None while it runs.

    `outcome` is done, running, broken off, or not run (yet).
    """

    stage: str
    started_at: datetime | None
    seconds: float | None
    outcome: str
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class AttemptSpan:
    """An attempt; `ended` is None while it runs, else how: succeeded, failed, cancelled, requeued."""

    number: int
    started_at: datetime
    waited_seconds: float
    seconds: float | None
    ended: str | None
    cause: str | None
    stages: tuple[StageSpan, ...]


@dataclass(frozen=True)
class Timeline:
    """The latest attempt, which lists every stage there is, and those before, latest first.

    Before a worker has begun, `stages` are all that is known. `longest_seconds` is that of the longest
    stage, for bars to one scale.
    """

    stages: tuple[StageSpan, ...]
    latest: AttemptSpan | None
    earlier: tuple[AttemptSpan, ...]
    longest_seconds: float


@dataclass
class _Attempt:
    number: int
    started_at: datetime
    waited_seconds: float
    stages: list[StageSpan] = field(default_factory=list)
    ended_at: datetime | None = None
    ended: str | None = None
    cause: str | None = None

    def begin(self, event: JobEvent) -> None:
        self._break_off(event.at)
        stage = str(event.payload.get("stage", ""))
        self.stages.append(StageSpan(stage, event.at, None, "running", None))

    def finish(self, event: JobEvent) -> None:
        if self.stages:
            last = self.stages[-1]
            seconds, peak = _number(event.payload, "seconds"), _number(event.payload, "peak_memory_bytes")
            whole = None if peak is None else int(peak)
            self.stages[-1] = replace(last, seconds=seconds, outcome="done", peak_memory_bytes=whole)

    def end(self, event: JobEvent) -> None:
        self._break_off(event.at)
        self.ended, self.ended_at = event.type, event.at
        cause = event.payload.get("cause") or event.payload.get("code")
        self.cause = None if cause is None else str(cause)

    def _break_off(self, at: datetime) -> None:
        last = self.stages[-1] if self.stages else None
        if last is not None and last.outcome == "running" and last.started_at is not None:
            passed = (at - last.started_at).total_seconds()
            self.stages[-1] = replace(last, seconds=passed, outcome="broken off")

    def span(self) -> AttemptSpan:
        seconds = None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()
        return AttemptSpan(
            self.number,
            self.started_at,
            self.waited_seconds,
            seconds,
            self.ended,
            self.cause,
            tuple(self.stages),
        )


def expected_stages(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The stages that a job of this spec may go through."""
    return tuple(stage for stage in STAGES if stage != FINETUNE or spec.get(FINETUNE))


def timeline(events: Iterable[JobEvent], created_at: datetime, expected: Sequence[str] = STAGES) -> Timeline:
    """What `events`, in order and of the types `TOLD_BY`, tell; all `expected` stages are listed."""
    attempts: list[_Attempt] = []
    free_at = created_at
    for event in events:
        if event.type == Transition.CLAIMED:
            waited = max((event.at - free_at).total_seconds(), 0.0)
            attempts.append(_Attempt(event.attempt, event.at, waited))
        elif attempts and event.type == STAGE_STARTED:
            attempts[-1].begin(event)
        elif attempts and event.type == STAGE_FINISHED:
            attempts[-1].finish(event)
        elif attempts and event.type in ENDINGS and attempts[-1].ended is None:
            attempts[-1].end(event)
            free_at = event.at
    spans = [attempt.span() for attempt in attempts]
    latest = spans.pop() if spans else None
    stages = _all_stages(latest.stages if latest is not None else (), expected)
    return Timeline(stages, latest, tuple(reversed(spans)), _longest(stages))


def _all_stages(run: Sequence[StageSpan], expected: Sequence[str]) -> tuple[StageSpan, ...]:
    """Those that ran, and where the others would have been, each once.

    That the list has its full length from the start keeps what stands below it in its place.
    """
    spans: dict[str, StageSpan] = {}
    for span in run:
        before = spans.get(span.stage)
        spans[span.stage] = span if before is None else _joined(before, span)
    for name in expected:
        spans.setdefault(name, StageSpan(name, None, None, "not run", None))
    order = {name: place for place, name in enumerate(STAGES)}
    return tuple(sorted(spans.values(), key=lambda span: order.get(span.stage, len(STAGES))))


def _joined(before: StageSpan, after: StageSpan) -> StageSpan:
    """A stage that runs in parts, as the evaluation does: texts, then continuations, then tasks.

    While the last part runs it has begun that much earlier as the parts before it took.
    """
    peaks = [span.peak_memory_bytes for span in (before, after) if span.peak_memory_bytes is not None]
    taken = before.seconds or 0.0
    began = None if after.started_at is None else after.started_at - timedelta(seconds=taken)
    seconds = None if after.seconds is None else taken + after.seconds
    return StageSpan(after.stage, began, seconds, after.outcome, max(peaks, default=None))


def _longest(spans: Sequence[StageSpan]) -> float:
    return max((span.seconds or 0.0 for span in spans), default=0.0)


def _number(payload: dict[str, Any], name: str) -> float | None:
    value = payload.get(name)
    return float(value) if isinstance(value, int | float) else None
