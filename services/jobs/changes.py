"""/v1/jobs, the changing half: submit, clone, cancel, delete."""

from collections.abc import Callable
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
from services.jobs.idempotency import Answer, Attempted, answered, digest_of, once
from services.jobs.repository import NewJob
from services.jobs.schemas import JobRead
from services.jobs.showing import show_one
from services.jobs.submissions import JobEdits, JobSubmission, edited, told
from services.jobs.viewer import Viewer
from services.pinning import hub_model
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


# What is to be made of the job that it may be a clone of.
Wanted = Callable[[sessions.ReadSession], JobSubmission]


@dataclass(frozen=True)
class Desk:
    """Takes jobs in. Its transactions are its own, so that none is open while the Hub is asked."""

    viewer: Viewer
    tools: Toolbox
    idempotency_key: str | None
    hub_token: SecretStr | None = None

    def attempted(self, operation: str, body: Any) -> Attempted | None:
        """The request as one that may come again; None if its sender did not give it a key."""
        if self.idempotency_key is None:
            return None
        return Attempted(self.viewer.owner_id, self.idempotency_key, digest_of(operation, body))

    def take(self, attempted: Attempted | None, wanted: Wanted, retry_of: UUID | None = None) -> Answer:
        """A queued job and the answer that says so; or the answer that `attempted` got before."""
        with self.tools.database.read() as session:
            known = None if attempted is None else answered(session, attempted)
            if known is not None:
                return known
            new = service.checked(wanted(session), self.viewer, self.tools, retry_of=retry_of)
            # What the uploads would be refused for is told before the Hub is asked.
            pinned_uploads(session, new.spec, self.viewer.owner_id)
        new = self._settled(new)
        with self.tools.database.write() as session:
            return once(session, attempted, lambda: self._queued(session, new))

    def _settled(self, new: NewJob) -> NewJob:
        """`new` at the commit of its model, and with its needs."""
        spec = self.tools.hub.pinned(new.spec, self.hub_token)
        config = self.tools.hub.configuration(hub_model(spec, self.tools.catalog), self.hub_token)
        foreseen = None if config is None else foresee(spec, config)
        needs = new.needs if foreseen is None else needs_of(spec, foreseen.sizes)
        return replace(new, spec=spec, needs=needs)

    def _queued(self, session: sessions.WriteSession, new: NewJob) -> Answer:
        # Much may have happened since: the uploads and the job that is cloned must still be there.
        new = replace(new, spec=pinned_uploads(session, new.spec, self.viewer.owner_id, keep=True))
        if new.retry_of is not None:
            repository.get(session, self.viewer, new.retry_of)
        admit(session, self.tools, self.viewer.owner_id)
        job = service.submit(session, new)
        job.traceparent = self.tools.tracing.traceparent()
        service.keep_token(job, self.hub_token, self.tools.secrets)
        base = (self.tools.settings.public_base_url or "").rstrip("/")
        body = show_one(session, job, lease_seconds=self.tools.settings.lease_seconds).model_dump_json()
        return Answer(ACCEPTED, f"{base}/v1/jobs/{job.id}", body)


def _desk(
    viewer: CurrentViewer,
    tools: Tools,
    idempotency_key: IdempotencyKey = None,
    hub_token: HubToken = None,
) -> Desk:
    return Desk(viewer, tools, idempotency_key, hub_token)


CurrentDesk = Annotated[Desk, Depends(_desk)]


@router.post("", status_code=ACCEPTED, response_model=JobRead)
def submit_job(submission: JobSubmission, desk: CurrentDesk) -> Response:
    """Queue a job. Watch it at the address in `Location`."""
    attempted = desk.attempted("submit", submission.model_dump(mode="json"))
    return _respond(desk.take(attempted, lambda _: submission))


@router.post("/{job_id}/retry", status_code=ACCEPTED, response_model=JobRead)
def retry_job(job_id: UUID, desk: CurrentDesk, edits: JobEdits | None = None) -> Response:
    """Queue a clone of a job, with the edits of the body; the job itself stays as it is.

    What the body leaves out is as in the job. Parts of `calibration`, `finetune` and `evaluation` can be
    edited alone; null asks for the default, and in `evaluation` for none.
    """
    wanted = edits or JobEdits()
    attempted = desk.attempted(f"retry {job_id}", told(wanted))

    def clone(session: sessions.ReadSession) -> JobSubmission:
        return edited(repository.get(session, desk.viewer, job_id), wanted)

    return _respond(desk.take(attempted, clone, job_id))


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
