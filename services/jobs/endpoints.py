"""/v1/jobs: parse, call, show."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from services.db.models import Job
from services.db.sessions import ReadSession as Reading
from services.dependencies import CurrentViewer, HubToken, ReadSession, Tools, WriteSession
from services.jobs import repository, service
from services.jobs.admission import admit
from services.jobs.repository import NewJob
from services.jobs.schemas import (
    EventPage,
    JobPage,
    JobRead,
    JobSubmission,
    MetricList,
    read_events,
    read_job,
    read_metrics,
)
from services.jobs.states import JobState

RETRY_AFTER_SECONDS = "2"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Limit = Annotated[int, Query(ge=1, le=100, description="The most items to answer with.")]


@router.post("", status_code=202)
def submit_job(
    submission: JobSubmission,
    session: WriteSession,
    viewer: CurrentViewer,
    tools: Tools,
    response: Response,
    hub_token: HubToken = None,
) -> JobRead:
    """Queue a job. Watch it at the address in `Location`."""
    spec = submission.to_spec()
    service.check_spec(spec, tools.catalog)
    deadline = service.deadline_seconds(submission.deadline_seconds, tools.settings)
    admit(session, tools, viewer.owner_id)
    job = service.submit(session, NewJob(spec, deadline, viewer.owner_id, submission.labels))
    service.keep_token(job, hub_token, tools.secrets)
    base = (tools.settings.public_base_url or "").rstrip("/")
    response.headers["Location"] = f"{base}/v1/jobs/{job.id}"
    response.headers["Retry-After"] = RETRY_AFTER_SECONDS
    return _show(session, [job])[0]


@router.get("")
def list_jobs(
    session: ReadSession,
    viewer: CurrentViewer,
    limit: Limit = 20,
    after: Annotated[UUID | None, Query(description="The `next_after` of the page before.")] = None,
    state: JobState | None = None,
) -> JobPage:
    """Your jobs, newest first."""
    jobs = repository.list_newest(session, viewer, limit=limit + 1, after=after, state=state)
    shown = jobs[:limit]
    more = len(jobs) > limit
    return JobPage(items=_show(session, shown), has_more=more, next_after=shown[-1].id if more else None)


@router.get("/{job_id}")
def get_job(job_id: UUID, session: ReadSession, viewer: CurrentViewer) -> JobRead:
    """One job: its state, how far it is, and, if it failed, why."""
    return _show(session, [repository.get(session, viewer, job_id)])[0]


@router.get("/{job_id}/events")
def list_events(
    job_id: UUID,
    session: ReadSession,
    viewer: CurrentViewer,
    limit: Limit = 100,
    after: Annotated[int, Query(ge=0, lt=2**31, description="The last number already seen.")] = 0,
) -> EventPage:
    """What happened to the job, in order; ask again with `next_after` for what follows."""
    repository.get(session, viewer, job_id)
    events = repository.list_events(session, job_id, after=after, limit=limit + 1)
    return read_events(list(events), after=after, limit=limit)


@router.get("/{job_id}/metrics")
def list_metrics(job_id: UUID, session: ReadSession, viewer: CurrentViewer) -> MetricList:
    """The figures measured by the latest attempt."""
    job = repository.get(session, viewer, job_id)
    return read_metrics(list(repository.list_metrics(session, job)))


@router.post("/{job_id}/cancel", status_code=202)
def cancel_job(job_id: UUID, session: WriteSession, viewer: CurrentViewer) -> JobRead:
    """End a job: at once while it is queued, within seconds while it runs. Asking twice is fine."""
    return _show(session, [repository.request_cancel(session, viewer, job_id)])[0]


def _show(session: Reading, jobs: Sequence[Job]) -> list[JobRead]:
    places = repository.queue_positions(session, jobs)
    return [read_job(job, places.get(job.id)) for job in jobs]
