"""/jobs/{job_id}: where a job stands, why, what came of it, and what can be done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from ghosted_core.checkpoint.snippets import FOLDER, Snippet
from services.artifacts.connection import HASTY
from services.artifacts.fitting import fitting_snippets
from services.artifacts.manifest import Manifest
from services.artifacts.storage import open_store
from services.audit import link_given
from services.dashboard import job_queries, spec_words
from services.dashboard.charts import Chart
from services.dashboard.history import Times, times
from services.dashboard.job_events import EventLine, event_lines
from services.dashboard.job_figures import FigureRow, figure_rows
from services.dashboard.job_files import Files, files_of, link_to
from services.dashboard.job_layers import LayerStrip, layers_of
from services.dashboard.job_queries import layer_counts
from services.dashboard.job_repairs import Repair, repairs_of, spectrum_chart, training_charts
from services.dashboard.job_rows import is_stale, known_layers, removal_of, stage_end, title_of
from services.dashboard.job_sizes import BeforeAfter, sizes_of
from services.dashboard.job_texts import Continuations, continuations_of
from services.dashboard.job_timeline import Timeline, expected_stages, timeline
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.report_file import Report, ReportShelf
from services.dashboard.user import CurrentUser
from services.db.models import Artifact, Job, JobEvent, JobMetric
from services.db.sessions import ReadSession
from services.dependencies import Tools
from services.jobs import listing, repository
from services.jobs.schemas import JobRead, LogTail, read_log
from services.jobs.showing import show_one
from services.jobs.states import FINAL_STATES, JobState
from services.toolbox import Toolbox

LOG_LINES = 200
EVENTS = 100
TEMPORARY_REDIRECT = 307

router = page_router()


@dataclass(frozen=True)
class SpecLine:
    """A value of the spec under its path."""

    path: str
    value: str


@dataclass(frozen=True)
class Actions:
    """What can be done now, by somebody who may."""

    cancel: bool
    delete: bool


@dataclass(frozen=True)
class JobPage:
    """All of a job's page; what is not known yet, or never will be, is None or empty."""

    title: str
    job: JobRead
    model: str
    strategy: str
    recovery: str
    removal: str
    times: Times
    stale: bool
    missed_gate: bool
    stage_ends_at: datetime | None
    deadline_at: datetime | None
    actions: Actions
    timeline: Timeline
    rows: tuple[FigureRow, ...]
    other_rows: tuple[FigureRow, ...]
    tasks_complete: bool
    layers: LayerStrip | None
    sizes: tuple[BeforeAfter, ...]
    repairs: tuple[Repair, ...]
    charts: tuple[Chart, ...]
    continuations: Continuations | None
    files: Files | None
    folder: str
    snippets: tuple[Snippet, ...]
    events: tuple[EventLine, ...]
    log: LogTail
    spec: tuple[SpecLine, ...]


@dataclass(frozen=True)
class Found:
    """What the database has of a job."""

    job: Job
    read: JobRead
    times: Times
    layer_count: int | None
    artifact: Artifact | None
    told: Sequence[JobEvent]
    events: Sequence[JobEvent]
    log: LogTail
    metrics: Sequence[JobMetric]


def look(session: ReadSession, tools: Toolbox, user: CurrentUser, job_id: UUID) -> Found:
    """The job and what belongs to it, in a number of queries that does not grow.

    Raises:
        JobNotFoundError: there is none, or it belongs to another key.
    """
    job, artifact = repository.get_with_artifact(session, user.viewer, job_id)
    lines = listing.last_log_events(session, job_id, limit=LOG_LINES + 1)
    return Found(
        job=job,
        read=show_one(session, job, lease_seconds=tools.settings.lease_seconds),
        times=times(session, [job])[job_id],
        layer_count=_layer_count(session, job, tools),
        artifact=artifact,
        told=job_queries.timeline_events(session, job_id),
        events=job_queries.latest_events(session, job_id, limit=EVENTS),
        log=read_log(lines, lines=LOG_LINES),
        metrics=listing.list_metrics(session, job),
    )


def _layer_count(session: ReadSession, job: Job, tools: Toolbox) -> int | None:
    return layer_counts(session, [job]).get(job.id) or known_layers(job.spec, tools.catalog)


def compose(found: Found, report: Report | None, now: datetime, *, lease_seconds: float) -> JobPage:
    """The page of what was found; `report` is that of the artifact, where it could be read."""
    job, read = found.job, found.read
    manifest = None if found.artifact is None else Manifest.model_validate(found.artifact.manifest)
    summary = {} if manifest is None else manifest.summary
    layers = layers_of(summary, found.told, job.attempt)
    layer_count = found.layer_count if layers is None else len(layers.cells)
    rows = figure_rows(found.metrics)
    model = spec_words.model_name(job.spec)
    return JobPage(
        title=model,
        job=read,
        model=model,
        strategy=title_of(job.spec["strategy"]),
        recovery=title_of(job.spec["recovery"]),
        removal=spec_words.removal_words(removal_of(job.spec, layer_count)),
        times=found.times,
        stale=is_stale(read, now, lease_seconds),
        missed_gate=found.artifact is not None and job.state == JobState.FAILED,
        stage_ends_at=stage_end(read),
        deadline_at=_deadline(job),
        actions=_actions(job),
        timeline=timeline(found.told, job.created_at, expected_stages(job.spec)),
        rows=tuple(row for row in rows if row.is_main),
        other_rows=tuple(row for row in rows if row.kind == "other"),
        tasks_complete=summary.get("tasks_complete", True) is True,
        layers=layers,
        sizes=() if manifest is None else sizes_of(manifest, rows),
        repairs=() if report is None else repairs_of(report),
        charts=() if report is None else _charts(report),
        continuations=continuations_of(summary),
        files=None if found.artifact is None or manifest is None else files_of(found.artifact, manifest, now),
        folder=FOLDER,
        snippets=() if manifest is None else fitting_snippets(manifest),
        events=event_lines(found.events),
        log=found.log,
        spec=tuple(SpecLine(path, value) for path, value in spec_words.flat(job.spec).items()),
    )


def _deadline(job: Job) -> datetime | None:
    running = job.state == JobState.RUNNING and job.started_at is not None
    return job.started_at + timedelta(seconds=job.deadline_seconds) if running and job.started_at else None


def _actions(job: Job) -> Actions:
    ended = job.state in FINAL_STATES
    return Actions(cancel=not ended and job.cancel_requested_at is None, delete=ended)


def _charts(report: Report) -> tuple[Chart, ...]:
    found = (spectrum_chart(report), *training_charts(report))
    return tuple(chart for chart in found if chart is not None)


def _shelf(request: Request, tools: Tools) -> ReportShelf:
    found = getattr(request.app.state, "reports", None)
    if not isinstance(found, ReportShelf):
        # With little patience: somebody waits for the page, which does without.
        found = request.app.state.reports = ReportShelf(open_store(tools.settings, HASTY))
    return found


def job_page(
    job_id: UUID, tools: Tools, user: CurrentUser, shelf: Annotated[ReportShelf, Depends(_shelf)]
) -> JobPage:
    """The page's data."""
    with tools.database.read() as session:
        found = look(session, tools, user, job_id)
    # Outside of the transaction: the store may take its time.
    report = None if found.artifact is None else shelf.report(found.artifact)
    return compose(found, report, datetime.now(UTC), lease_seconds=tools.settings.lease_seconds)


Made = Annotated[JobPage, Depends(job_page)]


@router.get("/jobs/{job_id}.json")
def job_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/jobs/{job_id}")
def job_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "job.html", page, user)


@router.get("/jobs/{job_id}/files/{path:path}")
def job_file(job_id: UUID, path: str, tools: Tools, user: CurrentUser) -> Response:
    """To a fresh link to a file of the artifact: those in an old page would have expired."""
    with tools.database.read() as session:
        _, artifact = repository.get_with_artifact(session, user.viewer, job_id)
    seconds = tools.settings.link_seconds
    address = link_to(artifact, path, tools.store, datetime.now(UTC), seconds=seconds)
    link_given(user.caller, "download", seconds, job_id=str(job_id), file=path)
    return RedirectResponse(address, TEMPORARY_REDIRECT, headers={"Cache-Control": "no-store"})
