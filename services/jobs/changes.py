"""/v1/jobs, the changing half: submit, clone, cancel, delete."""

from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Response
from pydantic import SecretStr

from services.db import sessions
from services.dependencies import CurrentViewer, HubToken, Tools, WriteSession
from services.jobs import repository, service
from services.jobs.admission import admit
from services.jobs.foresight import foresee
from services.jobs.idempotency import Answer, Attempted, digest_of, once
from services.jobs.repository import NewJob
from services.jobs.schemas import JobRead
from services.jobs.showing import show_one
from services.jobs.submissions import JobEdits, JobSubmission, edited
from services.jobs.viewer import Viewer
from services.toolbox import Toolbox
from services.uploads.references import pinned_uploads
from services.workers.needs import needs_of

ACCEPTED = 202
RETRY_AFTER_SECONDS = "2"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]{1,255}$",
        description=(
            "A text of your own, fresh for each new job. Sent again within 24 hours, the same request "
            "gets the same answer, with `Idempotent-Replayed: true`, and makes no second job."
        ),
    ),
]


@dataclass(frozen=True)
class Desk:
    """What taking a job in asks for."""

    session: sessions.WriteSession
    viewer: Viewer
    tools: Toolbox
    idempotency_key: str | None
    hub_token: SecretStr | None = None

    def attempted(self, operation: str, body: Any) -> Attempted | None:
        """The request as one that may come again; None if its sender did not give it a key."""
        if self.idempotency_key is None:
            return None
        return Attempted(self.viewer.owner_id, self.idempotency_key, digest_of(operation, body))

    def take(self, submission: JobSubmission, retry_of: UUID | None = None) -> Answer:
        """A queued job, and the answer that says so."""
        new = service.checked(submission, self.viewer, self.tools, retry_of=retry_of)
        new = self._settled(new)
        admit(self.session, self.tools, self.viewer.owner_id)
        job = service.submit(self.session, new)
        job.traceparent = self.tools.tracing.traceparent()
        service.keep_token(job, self.hub_token, self.tools.secrets)
        base = (self.tools.settings.public_base_url or "").rstrip("/")
        body = show_one(self.session, job, lease_seconds=self.tools.settings.lease_seconds).model_dump_json()
        return Answer(ACCEPTED, f"{base}/v1/jobs/{job.id}", body)

    def _settled(self, new: NewJob) -> NewJob:
        """`new` with every name in its spec become one content, commit and checksums, and with its needs."""
        spec = pinned_uploads(self.session, new.spec, self.viewer.owner_id)
        spec = self.tools.hub.pinned(spec, self.hub_token)
        config = self.tools.hub.configuration(spec, self.hub_token)
        foreseen = None if config is None else foresee(spec, config)
        needs = new.needs if foreseen is None else needs_of(spec, foreseen.sizes)
        return replace(new, spec=spec, needs=needs)


def _desk(
    session: WriteSession,
    viewer: CurrentViewer,
    tools: Tools,
    idempotency_key: IdempotencyKey = None,
    hub_token: HubToken = None,
) -> Desk:
    return Desk(session, viewer, tools, idempotency_key, hub_token)


# The same scope as the session inside it.
CurrentDesk = Annotated[Desk, Depends(_desk, scope="function")]


@router.post("", status_code=ACCEPTED, response_model=JobRead)
def submit_job(submission: JobSubmission, desk: CurrentDesk) -> Response:
    """Queue a job. Watch it at the address in `Location`."""
    attempted = desk.attempted("submit", submission.model_dump(mode="json"))
    return _respond(once(desk.session, attempted, lambda: desk.take(submission)))


@router.post("/{job_id}/retry", status_code=ACCEPTED, response_model=JobRead)
def retry_job(job_id: UUID, desk: CurrentDesk, edits: JobEdits | None = None) -> Response:
    """Queue a clone of a job, with the edits of the body; the job itself stays as it is.

    What the body leaves out is as in the job. Parts of `calibration` and `evaluation` can be edited
    alone; null asks for the default, and in `evaluation` for none.
    """
    wanted = edits or JobEdits()
    job = repository.get(desk.session, desk.viewer, job_id)
    body = wanted.model_dump(mode="json", exclude_unset=True)
    attempted = desk.attempted(f"retry {job_id}", body)
    return _respond(once(desk.session, attempted, lambda: desk.take(edited(job, wanted), job.id)))


@router.post("/{job_id}/cancel", status_code=ACCEPTED)
def cancel_job(job_id: UUID, session: WriteSession, viewer: CurrentViewer, tools: Tools) -> JobRead:
    """End a job: at once while it is queued, within seconds while it runs. Asking twice is fine."""
    job = repository.request_cancel(session, viewer, job_id)
    return show_one(session, job, lease_seconds=tools.settings.lease_seconds)


@router.delete("/{job_id}", status_code=204)
def delete_job(job_id: UUID, session: WriteSession, viewer: CurrentViewer, tools: Tools) -> None:
    """Delete a job that has ended: its record, events and figures, and all its files."""
    service.delete(session, repository.lock_finished(session, viewer, job_id), tools.store)


def _respond(answer: Answer) -> Response:
    headers = {"Location": answer.location, "Retry-After": RETRY_AFTER_SECONDS}
    if answer.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(answer.body, answer.status, headers, media_type="application/json")
