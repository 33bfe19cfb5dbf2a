"""Jobs as points: what each costs and how good it is, and which of them no other one beats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from services.artifacts.manifest import Manifest
from services.dashboard import spec_words
from services.dashboard.charts import Axis, Chart, Series
from services.dashboard.formatting import NONE
from services.dashboard.job_figures import FigureRow
from services.dashboard.job_sizes import sizes_of
from services.db.models import Job


@dataclass(frozen=True)
class Measure:
    """A figure that can be an axis."""

    name: str
    title: str
    lower_is_better: bool


@dataclass(frozen=True)
class Compared:
    """A job, with its figures by name and those of the model that it began with.

    `bases` says of each quality figure on what it was measured: only those on the same compare. Perplexities
    of models with other tokens do not either.
    """

    id: UUID
    state: str
    model: str
    label: str
    figures: Mapping[str, float]
    dense: Mapping[str, float]
    bases: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Point:
    """A model among others: a job's result, or what a job began with (`job_id` None)."""

    label: str
    x: float
    y: float
    job_id: UUID | None


COSTS = (
    Measure("weights", "weights in MiB", lower_is_better=True),
    Measure("parameters", "parameters in millions", lower_is_better=True),
    Measure("layers", "layers", lower_is_better=True),
)
# Facts that tell people nothing but that they differ.
DIGESTS = ("files", "fingerprint")
UNITS = {"weights": 1 << 20, "parameters": 1_000_000}


def compared(job: Job, rows: Sequence[FigureRow]) -> Compared:
    """What is to be compared of a job."""
    figures: dict[str, float] = {}
    dense: dict[str, float] = {}
    if job.artifact is not None:
        for size in sizes_of(Manifest.model_validate(job.artifact.manifest), ()):
            unit = UNITS.get(size.name, 1)
            _note(figures, size.name, size.after, unit)
            _note(dense, size.name, size.before, unit)
    for row in rows:
        _note(figures, row.metric, row.result)
        _note(dense, row.metric, row.value("dense"))
    model = spec_words.model_name(job.spec)
    bases = {row.metric: _basis(row, model) for row in rows if row.is_main}
    return Compared(job.id, job.state, model, spec_words.job_words(job.spec), figures, dense, bases)


def _basis(row: FigureRow, model: str) -> Mapping[str, str]:
    return {"model": model, **row.basis} if row.kind == "perplexity" else row.basis


def unlike(jobs: Sequence[Compared], metric: str) -> str:
    """In what the jobs' figures were not measured alike, in words; empty where they compare."""
    bases = [job.bases[metric] for job in jobs if metric in job.bases]
    facts = dict.fromkeys(fact for basis in bases for fact in basis)
    told = {fact: dict.fromkeys(basis.get(fact, NONE) for basis in bases) for fact in facts}
    return ", ".join(_difference(fact, list(values)) for fact, values in told.items() if len(values) > 1)


def _difference(fact: str, values: Sequence[str]) -> str:
    words = fact.replace("_", " ")
    return words if fact in DIGESTS else f"{words} ({', '.join(values)})"


def _note(figures: dict[str, float], name: str, value: float | None, unit: float = 1) -> None:
    if value is not None:
        figures[name] = value / unit


def costs(rows: Iterable[FigureRow]) -> tuple[Measure, ...]:
    """What can lie along the x axis: sizes, and the speeds among `rows`."""
    speeds = _directions(row for row in rows if row.kind == "speed")
    return (*COSTS, *(Measure(name, name.replace("_", " "), lower) for name, lower in speeds.items()))


def qualities(rows: Iterable[FigureRow]) -> tuple[Measure, ...]:
    """What can lie along the y axis."""
    found = _directions(row for row in rows if row.is_main)
    return tuple(Measure(name, name, lower) for name, lower in found.items())


def _directions(rows: Iterable[FigureRow]) -> dict[str, bool]:
    """Whether lower is better, by metric; those of which nobody knows are no measures."""
    return {row.metric: row.lower_is_better for row in rows if row.lower_is_better is not None}


def points(jobs: Iterable[Compared], x: Measure, y: Measure) -> tuple[Point, ...]:
    """A point a job that has both figures, and one a model that they began with."""
    found: list[Point] = []
    begun: dict[str, Point] = {}
    for job in jobs:
        if x.name in job.figures and y.name in job.figures:
            found.append(Point(job.label, job.figures[x.name], job.figures[y.name], job.id))
        if x.name in job.dense and y.name in job.dense:
            dense = Point(f"{job.model}, dense", job.dense[x.name], job.dense[y.name], None)
            begun.setdefault(job.model, dense)
    return (*found, *begun.values())


def front(found: Sequence[Point], x: Measure, y: Measure) -> tuple[Point, ...]:
    """The points that no other one beats on one axis without losing on the other, along the x axis."""
    return tuple(
        sorted(
            (one for one in found if not any(_beats(other, one, x, y) for other in found)),
            key=lambda point: (point.x, point.y),
        )
    )


def _beats(one: Point, other: Point, x: Measure, y: Measure) -> bool:
    """Whether `one` is at least as good on both axes and better on one."""
    cost = (one.x - other.x) * (1 if x.lower_is_better else -1)
    loss = (one.y - other.y) * (1 if y.lower_is_better else -1)
    return cost <= 0 and loss <= 0 and (cost < 0 or loss < 0)


def trade_off(jobs: Sequence[Compared], x: Measure, y: Measure) -> Chart | None:
    """The scatter, with its front where values compare; None without a point."""
    found = points(jobs, x, y)
    if not found:
        return None
    best = () if unlike(jobs, y.name) else (_series("Pareto front", front(found, x, y), "lines"),)
    return Chart(
        id="trade-off",
        title=f"{y.title} against {x.title}",
        x=Axis(x.title),
        # Perplexities of broken models lie powers of ten above the others.
        y=Axis(y.title, logarithmic=y.lower_is_better and _spread(found)),
        series=(
            _series("jobs", [point for point in found if point.job_id is not None], "markers"),
            _series("dense", [point for point in found if point.job_id is None], "markers"),
            *best,
        ),
    )


def _spread(found: Sequence[Point]) -> bool:
    values = [point.y for point in found]
    return min(values) > 0 and max(values) / min(values) > 10  # noqa: PLR2004 - a power of ten


def _series(name: str, shown: Sequence[Point], mode: str) -> Series:
    return Series(
        name=name,
        x=tuple(point.x for point in shown),
        y=tuple(point.y for point in shown),
        mode=mode,
        labels=tuple(point.label for point in shown),
        links=tuple(f"/jobs/{point.job_id}" if point.job_id is not None else "" for point in shown),
    )
