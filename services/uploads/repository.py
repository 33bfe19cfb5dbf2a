"""All SQL about uploads."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Text, cast, delete, func, or_, select, true

from services.db.models import Job, Upload
from services.db.sessions import ReadSession, WriteSession
from services.errors import TooManyUploadsError, UploadNotFoundError
from services.jobs.states import ACTIVE_STATES
from services.uploads.checking import CheckedText, TextFormat

# Any number serves, as long as every process of the API takes the same.
LOCK_SEED = 0x75706C6F  # "uplo"
# A place is free when an upload is deleted or its time is over.
RETRY_AFTER_SECONDS = 3600
# The longest that a link to send bytes works, and the longest that sending them may take after that.
LINK_LASTS = timedelta(hours=2)
# Of a job's spec, those that name a text of their own.
PARTS = ("calibration", "evaluation", "finetune")


def add(
    session: WriteSession, owner_id: UUID | None, kind: TextFormat, size_bytes: int, *, lasts: timedelta
) -> Upload:
    """An upload that was begun; if it is not completed, it is gone after `lasts`."""
    upload = Upload(
        owner_id=owner_id, format=kind.value, size_bytes=size_bytes, expires_at=func.now() + lasts
    )
    session.add(upload)
    session.flush()
    session.refresh(upload)
    return upload


def check_room(session: WriteSession, owner_id: UUID | None, most: int) -> None:
    """Return if this key may keep one upload more, begun in this transaction; 0 is no limit.

    Raises:
        TooManyUploadsError: it may not.
    """
    if not most:
        return
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(str(owner_id), LOCK_SEED))))
    mine = (Upload.owner_id == owner_id, Upload.expires_at > func.now())
    kept = select(Upload.id).where(*mine).limit(most).subquery()
    if (session.scalar(select(func.count()).select_from(kept)) or 0) >= most:
        raise TooManyUploadsError(
            f"this key keeps {most} uploads already", retry_after_seconds=RETRY_AFTER_SECONDS
        )


def get(
    session: ReadSession,
    owner_id: UUID | None,
    upload_id: UUID,
    *,
    lock: bool = False,
    keep: bool = False,
) -> Upload:
    """The upload, if it is one of this key, or of anyone where authentication is off, and not past its time.

    With `lock` it is this transaction's alone; with `keep` others may read it, and none delete it.

    Raises:
        UploadNotFoundError: there is none.
    """
    query = select(Upload).where(Upload.id == upload_id, _seen_by(owner_id), Upload.expires_at > func.now())
    locking = query.with_for_update(read=not lock) if lock or keep else query
    upload = session.scalars(locking).one_or_none()
    if upload is None:
        raise UploadNotFoundError(f"no upload {upload_id}")
    return upload


def list_newest(
    session: ReadSession, owner_id: UUID | None, *, limit: int, after: UUID | None
) -> Sequence[Upload]:
    """At most `limit` uploads that this key finds, newest first, from below the upload `after` on.

    Ids grow with time. `after` need not exist any more: it is a place, not an upload.
    """
    query = select(Upload).where(_seen_by(owner_id), Upload.expires_at > func.now())
    if after is not None:
        query = query.where(Upload.id < after)
    return session.scalars(query.order_by(Upload.id.desc()).limit(limit)).all()


def complete(session: WriteSession, upload: Upload, found: CheckedText, *, lasts: timedelta) -> None:
    """Jobs may name the upload, for as long as it lasts from now."""
    upload.sha256 = found.sha256
    upload.documents = found.documents
    upload.completed_at = func.now()
    upload.expires_at = func.now() + lasts
    session.flush()
    session.refresh(upload)


def end(session: WriteSession, upload: Upload) -> None:
    """The upload's time is over: nobody finds it any more but the sweeper."""
    # Not now: a transaction that began before this one, and waited for it, would still find the upload.
    upload.expires_at = upload.created_at
    session.flush()


def remove(session: WriteSession, upload: Upload) -> None:
    """The upload's row is gone."""
    session.execute(delete(Upload).where(Upload.id == upload.id))


def in_use(session: ReadSession, upload: Upload) -> bool:
    """Whether a job that waits or runs names the upload."""
    return session.scalar(select(_in_use(str(upload.id)))) or False


def expired(session: WriteSession, *, limit: int) -> Sequence[Upload]:
    """At most `limit` uploads past their time, locked; those that an active job names wait for its end.

    So do those whose link may still work: bytes that come late are to be deleted too.
    """
    query = (
        select(Upload)
        .where(
            Upload.expires_at < func.now(),
            Upload.created_at < func.now() - LINK_LASTS,
            ~_in_use(cast(Upload.id, Text)),
        )
        .order_by(Upload.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return session.scalars(query).all()


def _seen_by(owner_id: UUID | None) -> ColumnElement[bool]:
    return true() if owner_id is None else Upload.owner_id == owner_id


def _in_use(upload_id: "str | ColumnElement[str]") -> ColumnElement[bool]:
    named = [Job.spec[part]["dataset"]["id"].astext == upload_id for part in PARTS]
    corpus = func.jsonb_build_object("dataset", func.jsonb_build_object("id", upload_id))
    named.append(Job.spec["evaluation"]["corpora"].op("@>")(func.jsonb_build_array(corpus)))
    return select(Job.id).where(Job.state.in_(ACTIVE_STATES), or_(*named)).exists()
