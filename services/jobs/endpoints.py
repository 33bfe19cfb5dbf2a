"""/v1/jobs, the reading half: parse, call, show."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import AwareDatetime, BeforeValidator, StringConstraints

from ghosted_core.spec.references import HUB_ID
from services.dependencies import CurrentViewer, ReadSession, Tools
from services.jobs import changes, listing, repository, stream, validation
from services.jobs.caching import tagged
from services.jobs.listing import Filters
from services.jobs.schemas import (
    EventPage,
    JobPage,
    JobRead,
    LogTail,
    MetricList,
    read_events,
    read_log,
    read_metrics,
)
from services.jobs.showing import show, show_one
from services.jobs.states import JobState
from services.jobs.submissions import LABEL_NAME, LABEL_TEXT
from services.parameters import check_rfc3339

reading = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Limit = Annotated[int, Query(ge=1, le=100, description="The most items to answer with.")]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="An ETag that you have; 304 says that it still holds.",
        max_length=1024,
    ),
]
LabelFilter = Annotated[str, StringConstraints(pattern=f"^{LABEL_NAME}={LABEL_TEXT}$", max_length=320)]
# Else a bare number would count as seconds since 1970.
Moment = Annotated[AwareDatetime, BeforeValidator(check_rfc3339)]
ModelFilter = Annotated[str, StringConstraints(pattern=f"{HUB_ID}|^[a-z0-9][a-z0-9._-]{{0,95}}$")]


def _filters(
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    model: Annotated[
        ModelFilter | None, Query(description="Only jobs of this Hub repository or alias.")
    ] = None,
    label: Annotated[
        list[LabelFilter] | None,
        Query(max_length=8, description="Only jobs with this label, as `name=text`; all of several."),
    ] = None,
    created_from: Annotated[
        Moment | None, Query(description="Only jobs submitted at this time or later.")
    ] = None,
    created_before: Annotated[
        Moment | None, Query(description="Only jobs submitted before this time.")
    ] = None,
) -> Filters:
    labels = dict(one.split("=", 1) for one in label or ())
    return Filters(state, model, labels, created_from, created_before)


@reading.get("")
def list_jobs(
    session: ReadSession,
    viewer: CurrentViewer,
    tools: Tools,
    filters: Annotated[Filters, Depends(_filters)],
    limit: Limit = 20,
    after: Annotated[UUID | None, Query(description="The `next_after` of the page before.")] = None,
) -> JobPage:
    """Your jobs, newest first."""
    jobs = listing.list_newest(session, viewer, limit=limit + 1, after=after, filters=filters)
    shown = jobs[:limit]
    more = len(jobs) > limit
    items = show(session, shown, lease_seconds=tools.settings.lease_seconds)
    return JobPage(items=items, has_more=more, next_after=shown[-1].id if more else None)


@reading.get("/{job_id}", response_model=JobRead)
def get_job(
    job_id: UUID,
    session: ReadSession,
    viewer: CurrentViewer,
    tools: Tools,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One job: its state, how far it is, and, if it failed, why."""
    job = repository.get(session, viewer, job_id)
    return tagged(show_one(session, job, lease_seconds=tools.settings.lease_seconds), if_none_match)


@reading.get("/{job_id}/events")
def list_events(
    job_id: UUID,
    session: ReadSession,
    viewer: CurrentViewer,
    limit: Limit = 100,
    after: Annotated[int, Query(ge=0, lt=2**31, description="The last number already seen.")] = 0,
) -> EventPage:
    """What happened to the job, in order; ask again with `next_after` for what follows."""
    repository.get(session, viewer, job_id)
    events = listing.list_events(session, job_id, after=after, limit=limit + 1)
    return read_events(events, after=after, limit=limit)


@reading.get("/{job_id}/log")
def tail_log(
    job_id: UUID,
    session: ReadSession,
    viewer: CurrentViewer,
    lines: Annotated[int, Query(ge=1, le=1000, description="The most lines to answer with.")] = 200,
) -> LogTail:
    """The end of the job's log: at most `lines` lines and 256 Ki characters."""
    repository.get(session, viewer, job_id)
    return read_log(listing.last_log_events(session, job_id, limit=lines + 1), lines=lines)


@reading.get("/{job_id}/metrics")
def list_metrics(job_id: UUID, session: ReadSession, viewer: CurrentViewer) -> MetricList:
    """The figures measured by the latest attempt."""
    job = repository.get(session, viewer, job_id)
    return read_metrics(listing.list_metrics(session, job))


router = APIRouter()
for _part in (reading, changes.router, validation.router, stream.router):
    router.include_router(_part)
