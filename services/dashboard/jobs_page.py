"""/jobs: the jobs of a key, newest first, and what each of them is at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Depends, Request, Response
from pydantic import TypeAdapter, ValidationError

from services.dashboard.forms import Form, read_form
from services.dashboard.job_queries import active_counts
from services.dashboard.job_rows import JobRow, job_rows
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession, Tools
from services.jobs import listing
from services.jobs.endpoints import LabelFilter, ModelFilter
from services.jobs.listing import Filters
from services.jobs.states import JobState

ROWS = 50
SPANS: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("last hour", timedelta(hours=1)),
    "24h": ("last 24 hours", timedelta(days=1)),
    "7d": ("last 7 days", timedelta(days=7)),
    "30d": ("last 30 days", timedelta(days=30)),
}
router = page_router()


@dataclass(frozen=True)
class FilterForm:
    """The filters as they stand in the address; `flaws` says which of them cannot be understood."""

    state: str = ""
    model: str = ""
    label: str = ""
    since: str = ""
    flaws: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether any is set."""
        return any((self.state, self.model, self.label, self.since))

    @property
    def query(self) -> str:
        """The filters as they stand in an address."""
        chosen = {name: getattr(self, name) for name in ("state", "model", "label", "since")}
        return urlencode({name: value for name, value in chosen.items() if value})


@dataclass(frozen=True)
class JobsPage:
    """Some jobs, and how many wait and run in all."""

    rows: Sequence[JobRow]
    filters: FilterForm
    states: Sequence[str]
    spans: Mapping[str, str]
    models: Sequence[str]
    queued: int
    running: int
    first_page: bool
    older: str | None


def _filters_of(form: FilterForm, now: datetime) -> tuple[Filters, FilterForm]:
    """What the form asks for; and the form, with what is wrong in it."""
    flaws: dict[str, str] = {}
    labels: dict[str, str] = {}
    if form.label:
        if _is_valid(TypeAdapter(LabelFilter), form.label):
            labels = dict([form.label.split("=", 1)])
        else:
            flaws["label"] = "A label is written name=text."
    if form.model and not _is_valid(TypeAdapter(ModelFilter), form.model):
        flaws["model"] = "A model is owner/name or an alias."
    if form.state and form.state not in set(JobState):
        flaws["state"] = "There is no such state."
    if form.since and form.since not in SPANS:
        flaws["since"] = "There is no such time."
    checked = FilterForm(form.state, form.model, form.label, form.since, flaws)
    if flaws:
        return Filters(), checked
    return (
        Filters(
            state=JobState(form.state) if form.state else None,
            model=form.model or None,
            labels=labels,
            created_from=now - SPANS[form.since][1] if form.since else None,
        ),
        checked,
    )


def _is_valid(kind: TypeAdapter[str], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _asked(form: Form) -> FilterForm:
    return FilterForm(form.text("state"), form.text("model"), form.text("label"), form.text("since"))


def jobs_page(request: Request, session: ReadSession, user: CurrentUser, tools: Tools) -> JobsPage:
    """The page's data."""
    now = datetime.now(UTC)
    form = read_form(request.url.query)
    filters, shown = _filters_of(_asked(form), now)
    after = _cursor(form.text("after"))
    jobs = (
        []
        if shown.flaws
        else listing.list_newest(session, user.viewer, limit=ROWS + 1, after=after, filters=filters)
    )
    rows = job_rows(session, jobs[:ROWS], tools.catalog, lease_seconds=tools.settings.lease_seconds, now=now)
    counts = active_counts(session, user.viewer)
    return JobsPage(
        rows=rows,
        filters=shown,
        states=[state.value for state in JobState],
        spans={name: words for name, (words, _) in SPANS.items()},
        models=sorted({row.model for row in rows} | set(tools.catalog.models)),
        queued=counts.get(JobState.QUEUED, 0),
        running=counts.get(JobState.RUNNING, 0),
        first_page=after is None,
        older=_page_after(shown, rows[-1].id) if len(jobs) > ROWS else None,
    )


def _cursor(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _page_after(filters: FilterForm, last: UUID) -> str:
    return f"/jobs?{'&'.join(part for part in (filters.query, urlencode({'after': last})) if part)}"


Made = Annotated[JobsPage, Depends(jobs_page)]


@router.get("/jobs.json")
def jobs_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/jobs")
def jobs_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "jobs.html", page, user)
