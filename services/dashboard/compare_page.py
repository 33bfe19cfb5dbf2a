"""/compare: jobs beside each other, and what each gains and loses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Depends, Query, Request, Response

from services.dashboard import compare_figures, job_queries, spec_words
from services.dashboard.charts import Chart
from services.dashboard.compare_figures import Compared, Measure, compared
from services.dashboard.compare_table import Difference, FigureLine, as_csv, differences, figure_lines
from services.dashboard.job_figures import FigureRow, figure_rows
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.db.models import Job
from services.db.sessions import ReadSession as Session
from services.dependencies import ReadSession
from services.errors import InvalidRequestError

MOST_JOBS = 20
CHOICES = 50

router = page_router()


@dataclass(frozen=True)
class Choice:
    """A job that can be picked."""

    id: UUID
    words: str
    state: str
    created_at: datetime
    picked: bool


@dataclass(frozen=True)
class ComparePage:
    """All of the page; without picked jobs, the choices alone."""

    title: str
    choices: tuple[Choice, ...]
    jobs: tuple[Compared, ...]
    costs: tuple[Measure, ...]
    qualities: tuple[Measure, ...]
    x: str
    y: str
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]
    differences: tuple[Difference, ...]
    figures: tuple[FigureLine, ...]
    csv_address: str


@dataclass(frozen=True)
class Picked:
    """The jobs that were asked for, with what was measured of each."""

    jobs: Sequence[Job]
    rows: Sequence[tuple[FigureRow, ...]]

    @property
    def all_rows(self) -> tuple[FigureRow, ...]:
        """The rows of all jobs."""
        return tuple(row for rows in self.rows for row in rows)

    @property
    def compared(self) -> tuple[Compared, ...]:
        """What is compared of each job."""
        return tuple(compared(job, rows) for job, rows in zip(self.jobs, self.rows, strict=True))


Asked = Annotated[list[UUID] | None, Query(alias="job")]
Name = Annotated[str, Query(max_length=160)]


def _pick(session: ReadSession, user: CurrentUser, asked: Asked = None) -> Picked:
    ids = list(dict.fromkeys(asked or ()))
    if len(ids) > MOST_JOBS:
        raise InvalidRequestError(
            f"{len(ids)} jobs were picked, and at most {MOST_JOBS} are compared at once",
            field="job",
            advice="Go back and pick fewer of them.",
        )
    jobs = job_queries.jobs_with_artifacts(session, user.viewer, ids) if ids else []
    metrics = job_queries.metrics_of(session, jobs) if jobs else {}
    return Picked(jobs, [figure_rows(metrics[job.id]) for job in jobs])


Chosen = Annotated[Picked, Depends(_pick)]


def compare_page(
    session: ReadSession, user: CurrentUser, picked: Chosen, x: Name = "weights", y: Name = "perplexity"
) -> ComparePage:
    """The page's data."""
    costs = compare_figures.costs(picked.all_rows)
    qualities = compare_figures.qualities(picked.all_rows)
    along, up = _named(costs, x), _named(qualities, y)
    jobs = picked.compared
    chart = compare_figures.trade_off(jobs, along, up) if along is not None and up is not None else None
    measures = {one.name: one for one in (*costs, *qualities)}
    return ComparePage(
        title="Compare",
        choices=_choices(session, user, picked.jobs),
        jobs=jobs,
        costs=costs,
        qualities=qualities,
        x="" if along is None else along.name,
        y="" if up is None else up.name,
        notes=_notes(jobs, up),
        charts=() if chart is None else (chart,),
        differences=differences(picked.jobs),
        figures=figure_lines(jobs, measures),
        csv_address=f"/compare.csv?{urlencode([('job', job.id) for job in picked.jobs])}",
    )


def _named(measures: Sequence[Measure], name: str) -> Measure | None:
    """The measure of that name; the first one where there is none."""
    found = (measure for measure in measures if measure.name == name)
    return next(found, measures[0] if measures else None)


def _notes(jobs: Sequence[Compared], quality: Measure | None) -> tuple[str, ...]:
    if quality is None:
        return ()
    differs = compare_figures.unlike(jobs, quality.name)
    return (f"The values of {quality.title} do not compare: they differ in {differs}.",) if differs else ()


def _choices(session: Session, user: CurrentUser, picked: Sequence[Job]) -> tuple[Choice, ...]:
    newest = job_queries.newest_with_result(session, user.viewer, limit=CHOICES)
    ids = {job.id for job in picked}
    others = [job for job in newest if job.id not in ids]
    return tuple(_choice(job, job.id in ids) for job in (*picked, *others))


def _choice(job: Job, picked: bool) -> Choice:  # noqa: FBT001 - a fact
    return Choice(job.id, spec_words.job_words(job.spec), job.state, job.created_at, picked)


Made = Annotated[ComparePage, Depends(compare_page)]


@router.get("/compare.json")
def compare_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/compare.csv")
def compare_csv(picked: Chosen) -> Response:
    """The jobs as a table for spreadsheets."""
    headers = {"Content-Disposition": 'attachment; filename="ghosted-jobs.csv"'}
    return Response(as_csv(picked.jobs, picked.compared), media_type="text/csv", headers=headers)


@router.get("/compare")
def compare_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "compare.html", page, user)
