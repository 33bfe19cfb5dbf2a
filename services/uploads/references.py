"""Uploads as jobs name them."""

from typing import Any
from uuid import UUID

from ghosted_core.spec import JobSpec, UploadText
from services.db.sessions import ReadSession
from services.errors import InvalidRequestError, UploadNotCompleteError
from services.uploads import repository

PARTS = ("calibration", "evaluation", "finetune")


def pinned_uploads(
    session: ReadSession, spec: JobSpec, owner_id: UUID | None, *, keep: bool = False
) -> JobSpec:
    """`spec` with the checksum of every upload that it names.

    With `keep`, which takes a transaction that may write, none of them is deleted before that ends.

    Raises:
        UploadNotFoundError: one is not there, or of another key.
        UploadNotCompleteError: one was not completed.
        InvalidRequestError: one has another checksum than the spec says.
    """
    changes: dict[str, Any] = {}
    for part in PARTS:
        inner = getattr(spec, part)
        named = None if inner is None else inner.dataset
        if isinstance(named, UploadText):
            known = _pinned(session, named, owner_id, field=f"{part}.dataset", keep=keep)
            changes[part] = inner.model_copy(update={"dataset": known})
    return spec.model_copy(update=changes) if changes else spec


def _pinned(
    session: ReadSession, named: UploadText, owner_id: UUID | None, *, field: str, keep: bool
) -> UploadText:
    upload = repository.get(session, owner_id, named.id, keep=keep)
    if upload.sha256 is None:
        raise UploadNotCompleteError(f"the upload {named.id} was not completed", field=field)
    if named.sha256 not in {None, upload.sha256}:
        raise InvalidRequestError(f"the upload {named.id} has another sha256", field=f"{field}.sha256")
    return named.model_copy(update={"sha256": upload.sha256})


def named_uploads(spec: JobSpec) -> tuple[UploadText, ...]:
    """The uploads that `spec` names, each once."""
    inner = (getattr(spec, part) for part in PARTS)
    named = (one.dataset for one in inner if one is not None)
    return tuple(dict.fromkeys(one for one in named if isinstance(one, UploadText)))
