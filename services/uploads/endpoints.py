"""/v1/uploads: a text of one's own, sent to the object store, then checked."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from services.db.models import Upload
from services.dependencies import CurrentViewer, ReadSession, Tools, WriteSession
from services.toolbox import Toolbox
from services.uploads import repository, service
from services.uploads.checking import TextFormat

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])


class UploadRequest(BaseModel):
    """What is going to be sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: TextFormat = Field(
        description="txt: documents separated by blank lines; jsonl: an object with the key `text` a line."
    )
    size_bytes: int = Field(ge=1, lt=2**63, description="The file's exact length.")


class UploadRead(BaseModel):
    """An upload as its owner sees it."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    format: TextFormat
    size_bytes: int
    complete: bool = Field(description="Whether jobs may name it, as `dataset: {upload: ID}`.")
    sha256: str | None
    documents: int | None = Field(description="How many documents were counted.")
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime = Field(description="When it is deleted; later, if a job needs it then.")

    @classmethod
    def of(cls, upload: Upload) -> Self:
        """What the API shows of a row."""
        return cls(
            id=upload.id,
            format=TextFormat(upload.format),
            size_bytes=upload.size_bytes,
            complete=upload.completed_at is not None,
            sha256=upload.sha256,
            documents=upload.documents,
            created_at=upload.created_at,
            completed_at=upload.completed_at,
            expires_at=upload.expires_at,
        )


class UploadPage(BaseModel):
    """Some uploads, newest first. `next_after` leads to the next page."""

    model_config = ConfigDict(frozen=True)

    items: list[UploadRead]
    has_more: bool
    next_after: UUID | None


class UploadBegun(UploadRead):
    """A new upload, and where its bytes go."""

    url: str = Field(description="PUT the file here: exactly `size_bytes` bytes, with no key of this API.")
    link_expires_at: datetime


@router.post("", status_code=201)
def begin_upload(
    request: UploadRequest, session: WriteSession, viewer: CurrentViewer, tools: Tools, response: Response
) -> UploadBegun:
    """Begin an upload. PUT the file to `url`, then POST to its `:complete`."""
    upload = service.begin(session, tools.settings, viewer.owner_id, request.format, request.size_bytes)
    base = (tools.settings.public_base_url or "").rstrip("/")
    response.headers["Location"] = f"{base}/v1/uploads/{upload.id}"
    # The link is as good as a key for what it names: no cache may keep it.
    response.headers["Cache-Control"] = "no-store"
    return _begun(upload, tools)


@router.get("")
def list_uploads(
    session: ReadSession,
    viewer: CurrentViewer,
    limit: Annotated[int, Query(ge=1, le=100, description="The most items to answer with.")] = 20,
    after: Annotated[UUID | None, Query(description="The `next_after` of the page before.")] = None,
) -> UploadPage:
    """Your uploads that are still kept, newest first."""
    found = repository.list_newest(session, viewer.owner_id, limit=limit + 1, after=after)
    shown, more = found[:limit], len(found) > limit
    return UploadPage(
        items=[UploadRead.of(upload) for upload in shown],
        has_more=more,
        next_after=shown[-1].id if more else None,
    )


# The converter keeps GET /v1/uploads/ID:complete from being taken for an upload of that id.
# Only ids: with more behind them they are other addresses.
@router.get("/{upload_id:uuid}")
def get_upload(upload_id: UUID, session: ReadSession, viewer: CurrentViewer) -> UploadRead:
    """One upload."""
    return UploadRead.of(repository.get(session, viewer.owner_id, upload_id))


@router.post("/{upload_id}:complete")
def complete_upload(upload_id: UUID, viewer: CurrentViewer, tools: Tools) -> UploadRead:
    """Check that the file has arrived and is text; then jobs may name it. Asking twice is fine."""
    return UploadRead.of(service.complete(tools, viewer.owner_id, upload_id))


@router.delete("/{upload_id:uuid}", status_code=204)
def delete_upload(upload_id: UUID, session: WriteSession, viewer: CurrentViewer, tools: Tools) -> None:
    """Delete an upload that no waiting or running job names."""
    service.delete(session, tools.store, viewer.owner_id, upload_id)


def _begun(upload: Upload, tools: Toolbox) -> UploadBegun:
    seconds = tools.settings.link_seconds
    url = tools.store.upload_link(service.object_key(upload), size_bytes=upload.size_bytes, seconds=seconds)
    expires_at = datetime.now(UTC) + timedelta(seconds=seconds)
    return UploadBegun(**UploadRead.of(upload).model_dump(), url=url, link_expires_at=expires_at)
