"""What can be done to a job from its page: cancel, delete, submit again."""

from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from services.auth.scopes import Scope
from services.dashboard.forms import ChangingUser, SentForm
from services.dashboard.job_rows import model_of
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession, Tools
from services.errors import JobFinishedError
from services.jobs import repository, service

CONFIRMED = "yes"
router = page_router()


@dataclass(frozen=True)
class DeletePage:
    """A job that is about to be deleted."""

    id: UUID
    model: str
    state: str


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: UUID, user: ChangingUser, tools: Tools) -> Response:
    """The job is told to end; one that has ended meanwhile is shown as it is."""
    try:
        with tools.database.write() as session:
            repository.request_cancel(session, user.viewer, job_id)
    except JobFinishedError:
        pass
    return RedirectResponse(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)


@router.get("/jobs/{job_id}/delete")
def ask_to_delete(job_id: UUID, request: Request, session: ReadSession, user: CurrentUser) -> Response:
    """A page that asks whether the job is to be deleted."""
    user.caller.require(Scope.SUBMIT)
    job = repository.get(session, user.viewer, job_id)
    page = DeletePage(job.id, model_of(job.spec)[0], job.state)
    return render(request, "delete.html", page, user)


@router.post("/jobs/{job_id}/delete")
def delete(job_id: UUID, form: SentForm, user: ChangingUser, tools: Tools) -> Response:
    """The job and its files are gone, if the form says that this is meant; else a page asks."""
    if form.text("confirmed") != CONFIRMED:
        return RedirectResponse(f"/jobs/{job_id}/delete", HTTPStatus.SEE_OTHER)
    with tools.database.write() as session:
        service.delete(session, repository.lock_finished(session, user.viewer, job_id), tools.store)
    return RedirectResponse("/jobs", HTTPStatus.SEE_OTHER)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: UUID, user: ChangingUser) -> Response:  # noqa: ARG001 - the user must be one who may
    """The submit form, filled in as the job was asked for."""
    return RedirectResponse(f"/submit?from={job_id}", HTTPStatus.SEE_OTHER)
