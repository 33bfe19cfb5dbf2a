"""Jobs beside each other: where their specs differ, their figures, and both as a file."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.dashboard import spec_words
from services.dashboard.compare_figures import Compared, Measure, unlike
from services.db.models import Job

ABSENT = "\N{EN DASH}"
# With these a text begins that spreadsheets compute, or that they cut off before they look.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True)
class Difference:
    """A path of the specs at which not all jobs are alike, with the value of each job."""

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class FigureLine:
    """A figure of each job; `best` says which jobs have the best one, where one is better.

    `unlike` says in what they were not measured alike, and is empty where they compare.
    """

    title: str
    unlike: str
    values: tuple[float | None, ...]
    best: tuple[bool, ...]


def differences(jobs: Sequence[Job]) -> tuple[Difference, ...]:
    """Where the specs differ, by path; a path that a spec has not is a dash."""
    specs = [spec_words.flat(job.spec) for job in jobs]
    paths = dict.fromkeys(path for spec in specs for path in spec)
    found = (Difference(path, tuple(spec.get(path, ABSENT) for spec in specs)) for path in paths)
    return tuple(one for one in found if len(set(one.values)) > 1)


def figure_lines(jobs: Sequence[Compared], measures: Mapping[str, Measure]) -> tuple[FigureLine, ...]:
    """Every figure that one of the jobs has."""
    names = dict.fromkeys(name for job in jobs for name in job.figures)
    return tuple(_line(name, jobs, measures.get(name)) for name in names)


def _line(name: str, jobs: Sequence[Compared], measure: Measure | None) -> FigureLine:
    values = tuple(job.figures.get(name) for job in jobs)
    known = [value for value in values if value is not None]
    title, differs = name if measure is None else measure.title, unlike(jobs, name)
    if measure is None or differs or len(set(known)) < 2:  # noqa: PLR2004 - of one value none is better
        return FigureLine(title, differs, values, tuple(False for _ in values))
    best = min(known) if measure.lower_is_better else max(known)
    return FigureLine(title, differs, values, tuple(value == best for value in values))


def as_csv(jobs: Sequence[Job], found: Sequence[Compared]) -> str:
    """A line a job: what it is, its spec, its figures and those of the dense model.

    Texts that a spreadsheet would take for formulas are led by an apostrophe.
    """
    specs = [spec_words.flat(job.spec) for job in jobs]
    paths = list(dict.fromkeys(path for spec in specs for path in spec))
    names = list(dict.fromkeys(name for one in found for name in one.figures))
    dense = list(dict.fromkeys(name for one in found for name in one.dense))
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow(
        [
            inert(name)
            for name in ("job", "state", "created_at", *paths, *names, *(f"dense {name}" for name in dense))
        ]
    )
    for job, spec, one in zip(jobs, specs, found, strict=True):
        texts = (str(job.id), job.state, job.created_at.isoformat(), *(spec.get(path, "") for path in paths))
        figures = [one.figures.get(name, "") for name in names] + [one.dense.get(name, "") for name in dense]
        writer.writerow([*(inert(text) for text in texts), *figures])
    return target.getvalue()


def inert(text: str) -> str:
    """`text` as no spreadsheet computes it; numbers stay what they are."""
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
