"""What was measured, variants side by side: dense, pruned, repaired."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.db.models import JobMetric

VARIANTS = ("dense", "pruned", "repaired", "finetuned")
# The figures of the last of these that there is are the job's result.
RESULT = ("finetuned", "repaired", "pruned")
# Their place is kept while they are not measured yet.
ALWAYS = VARIANTS[:3]
LOWER_IS_BETTER = ("perplexity", "nll", "kl", "longest_repeat")
# Of benchmark tasks. The harness has many more, and says of each which way is better.
HIGHER_IS_BETTER = ("acc_", "exact_match_", "f1_", "mcc_")
RATE = "_per_second"
COSTS = ("_seconds", "_bytes")
# e^nll, so that the error of a perplexity follows from that of its logarithm.
PERPLEXITY = "perplexity"
# Of a figure's detail, what decides what was measured: items of a task, windows of a text.
BASIS = (
    "task",
    "task_version",
    "items",
    "shots",
    "files",
    "dataset",
    "fingerprint",
    "windows",
    "length",
    "part",
    "seed",
    "skipped_documents",
)


@dataclass(frozen=True)
class Cell:
    """A value with its standard error, or the reason why there is none; `share` is of the row's largest."""

    variant: str
    value: float | None
    error: float | None
    reason: str | None
    share: float | None


@dataclass(frozen=True)
class FigureRow:
    """A metric of the variants that have it. `kind` is perplexity, task, speed or other.

    `lower_is_better` is None where nobody says which is. `on` says on what it was measured, `basis` exactly,
    by name: two figures compare if all of it is the same.
    """

    metric: str
    kind: str
    lower_is_better: bool | None
    on: str
    basis: Mapping[str, str]
    cells: tuple[Cell, ...]

    def value(self, variant: str) -> float | None:
        """The value of `variant`, if it was measured and is a number."""
        return next((cell.value for cell in self.cells if cell.variant == variant), None)

    @property
    def is_main(self) -> bool:
        """Whether it tells if the model still works."""
        return self.kind in {"perplexity", "task"}

    @property
    def result(self) -> float | None:
        """The value of what the job delivers."""
        return next((value for name in RESULT if (value := self.value(name)) is not None), None)


def figure_rows(metrics: Iterable[JobMetric]) -> tuple[FigureRow, ...]:
    """Rows in the order in which they were measured; figures without a variant are not among them.

    All rows have the same variants: those of which something was measured.
    """
    found: dict[str, dict[str, JobMetric]] = {}
    for metric in metrics:
        name, _, variant = metric.name.rpartition("_")
        if name and variant in VARIANTS:
            found.setdefault(name, {})[variant] = metric
    there = {variant for measured in found.values() for variant in measured}
    variants = [variant for variant in VARIANTS if variant in {*there, *ALWAYS}]
    return tuple(_row(name, measured, variants) for name, measured in found.items())


def _row(name: str, measured: Mapping[str, JobMetric], variants: Sequence[str]) -> FigureRow:
    largest = max((abs(one.value) for one in measured.values() if one.value is not None), default=0.0)
    return FigureRow(
        metric=name,
        kind=_kind(name, measured.values()),
        lower_is_better=_lower_is_better(name, measured.values()),
        on=_on(measured.values()),
        basis=_basis(measured.values()),
        cells=tuple(_cell(name, variant, measured.get(variant), largest) for variant in variants),
    )


def _lower_is_better(name: str, metrics: Iterable[JobMetric]) -> bool | None:
    """As the harness says of its own figures; of those that it says nothing of, as everybody knows."""
    told = [one for metric in metrics if isinstance(one := metric.detail.get("higher_is_better"), bool)]
    if told:
        return not told[0]
    if _kind(name, metrics) == "task":
        return False if name.startswith(HIGHER_IS_BETTER) else None
    return name.startswith(LOWER_IS_BETTER) or name.endswith(COSTS)


def _cell(name: str, variant: str, metric: JobMetric | None, largest: float) -> Cell:
    if metric is None:
        return Cell(variant, None, None, None, None)
    share = abs(metric.value) / largest if metric.value is not None and largest else None
    return Cell(variant, metric.value, _error(name, metric), metric.reason, share)


def _error(name: str, metric: JobMetric) -> float | None:
    of_nll = _number(metric.detail.get("standard_error_nll"))
    if name.startswith(PERPLEXITY) and of_nll is not None and metric.value is not None:
        return metric.value * of_nll
    return _number(metric.detail.get("standard_error"))


def _kind(name: str, metrics: Iterable[JobMetric]) -> str:
    if name.startswith(PERPLEXITY):
        return "perplexity"
    if any("task" in metric.detail for metric in metrics):
        return "task"
    return "speed" if name.endswith((RATE, *COSTS)) else "other"


def _basis(metrics: Iterable[JobMetric]) -> dict[str, str]:
    detail = _detail(metrics)
    return {name: _told(detail[name]) for name in BASIS if detail.get(name) is not None}


def _told(fact: Any) -> str:
    """A fact as one text; of many files, the digest of all that is known of them."""
    if isinstance(fact, Mapping):
        return hashlib.sha256(json.dumps(fact, sort_keys=True).encode()).hexdigest()
    return str(fact)


def _on(metrics: Iterable[JobMetric]) -> str:
    """On what it was measured, in words."""
    detail = _detail(metrics)
    if "task" in detail:
        counts = [f"{detail[name]} {name}" for name in ("items", "shots") if detail.get(name) is not None]
        return ", ".join([f"task {detail['task']}", *counts])
    if "dataset" in detail:
        windows, length = detail.get("windows"), detail.get("length")
        extent = f", {windows} windows of {length} tokens" if windows and length else ""
        return f"{detail['dataset']}{extent}"
    if "prompts" in detail:
        return f"{detail['prompts']} prompts"
    return ""


def _detail(metrics: Iterable[JobMetric]) -> Mapping[str, Any]:
    """That of any variant: all are measured on the same."""
    return next((metric.detail for metric in metrics if metric.detail), {})


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
