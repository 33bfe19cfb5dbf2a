"""All layers of a model in a row: which went, where a repair stands, how each scored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ghosted_core.candidates import SCORING_RUNS
from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import PruningPlan
from services.db.models import JobEvent

# Of more, no model is known; a row that says so is wrong, and would make an endless page.
MOST_LAYERS = 4096
# The event that says which layers go, long before there is an artifact.
CHOSEN = "layers_chosen"
UNKNOWN_SCORES = "No scores: the record of this job does not hold them."


@dataclass(frozen=True)
class LayerCell:
    """A layer of the source. `level` places its score between the lowest (0) and the highest (1).

    `place` is its index in the pruned model. `opens` and `closes` say whether it is the first and the
    last of a removed run. `tip` says all of it in words.
    """

    index: int
    removed: bool
    place: int | None
    score: float | None
    level: float | None
    opens: bool
    closes: bool
    tip: str


@dataclass(frozen=True)
class Run:
    """A removed run of layers [start, stop): a boundary."""

    start: int
    stop: int


@dataclass(frozen=True)
class LayerStrip:
    """All layers; `meaning` says what the scores are, `best` whether the highest or the lowest went.

    `unscored` says why no layer has a score; it is empty where some have.
    """

    criterion: str
    meaning: str
    best: str
    cells: tuple[LayerCell, ...]
    runs: tuple[Run, ...]
    unscored: str


class _Loose(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Other(_Loose):
    criterion: str = ""
    candidates: tuple[tuple[int, float | None], ...] = ()


class _Scores(_Other):
    meaning: str = ""
    best: str = ""
    protected: tuple[int, ...] = ()
    others: tuple[_Other, ...] = ()


class _Plan(_Loose):
    removed: tuple[int, ...]
    scores: _Scores = _Scores()


class _Source(_Loose):
    layer_count: int = Field(ge=1, le=MOST_LAYERS)


class _Summary(_Loose):
    plan: _Plan
    source: _Source


def layers_of(summary: Mapping[str, Any], told: Iterable[JobEvent], attempt: int) -> LayerStrip | None:
    """As the artifact's summary has them; where there is none yet, or never was, as the attempt told."""
    payloads = [event.payload for event in told if event.type == CHOSEN and event.attempt == attempt]
    chosen = payloads[-1] if payloads else {}
    return strip_of(summary) or strip_of({"plan": chosen, "source": chosen})


def strip_of(summary: Mapping[str, Any]) -> LayerStrip | None:
    """The layers as the summary of an artifact's manifest has them; None if it says nothing of that."""
    try:
        found = _Summary.model_validate(summary)
        plan = PruningPlan.from_removed(found.plan.removed, layer_count=found.source.layer_count)
    except (ValidationError, InvalidSpecError):
        return None
    return _strip(plan, found.plan.scores)


def _strip(plan: PruningPlan, scores: _Scores) -> LayerStrip:
    scored = {index: value for index, value in scores.candidates if value is not None}
    places = {index: place for place, index in enumerate(plan.kept)}
    opening = {boundary.start for boundary in plan.boundaries}
    closing = {boundary.stop - 1 for boundary in plan.boundaries}
    levels = _levels(scored)
    others = {one.criterion: dict(one.candidates) for one in scores.others}
    cells = tuple(
        LayerCell(
            index=index,
            removed=index not in places,
            place=places.get(index),
            score=scored.get(index),
            level=levels.get(index),
            opens=index in opening,
            closes=index in closing,
            tip=f"Layer {index}: {_fate(places.get(index))}{_told(index, scored.get(index), scores)}"
            f"{_by_others(index, others)}",
        )
        for index in range(plan.layer_count)
    )
    runs = tuple(Run(boundary.start, boundary.stop) for boundary in plan.boundaries)
    return LayerStrip(scores.criterion, scores.meaning, scores.best, cells, runs, _unscored(scores))


def _levels(scored: Mapping[int, float]) -> dict[int, float]:
    """Where each score lies between the lowest and the highest; scores often differ in late digits only."""
    low, high = min(scored.values(), default=0.0), max(scored.values(), default=0.0)
    span = high - low
    return {index: (value - low) / span if span else 1.0 for index, value in scored.items()}


def _fate(place: int | None) -> str:
    return "removed" if place is None else f"kept as layer {place}"


def _told(index: int, score: float | None, scores: _Scores) -> str:
    """What is known of a layer's score, or why it has none."""
    of_run = scores.criterion in SCORING_RUNS
    if score is not None:
        return f", score {score:.5g}{' of the run that begins here' if of_run else ''}"
    if index in scores.protected:
        return ", protected"
    if not scores.candidates:
        return ""
    return ", no run can begin here" if of_run else ", not scored"


def _by_others(index: int, others: Mapping[str, Mapping[int, float | None]]) -> str:
    """The scores of criteria that did not decide."""
    given = {name: scores.get(index) for name, scores in others.items()}
    said = [f"{name} {score:.5g}" for name, score in given.items() if score is not None]
    return f"; by others: {', '.join(said)}" if said else ""


def _unscored(scores: _Scores) -> str:
    if scores.candidates:
        return ""
    return f"No scores, for none were needed: {scores.meaning}." if scores.meaning else UNKNOWN_SCORES
