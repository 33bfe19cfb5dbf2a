"""The same request, sent again with its `Idempotency-Key`, is answered again and done once.

A key belongs to one API key and is kept for 24 hours. What the request made and the record of its
answer are committed together; a request that is refused leaves no record, so that its key can be
used for the corrected one.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from services.db.models import IdempotencyKey
from services.db.sessions import ReadSession, WriteSession
from services.errors import IdempotencyBusyError, IdempotencyReuseError
from services.jobs.rows import seconds

KEPT = timedelta(hours=24)
# Each new key clears away some that have expired: more leave than come, and no job is needed for it.
CLEARED_AT_ONCE = 10


@dataclass(frozen=True)
class Answer:
    """What a request was answered; `replayed` says whether that was before."""

    status: int
    location: str
    body: str
    replayed: bool = False


@dataclass(frozen=True)
class Attempted:
    """A request that may be one sent again: whose, under which key, and what it asks."""

    owner_id: UUID | None
    key: str
    digest: str

    @property
    def lock(self) -> int:
        """The number of the advisory lock that one request at a time holds: 64 bits with a sign."""
        digest = hashlib.sha256(f"idempotency\0{self.owner_id}\0{self.key}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


def digest_of(operation: str, body: Any) -> str:
    """SHA-256 of what a request asks, however its JSON was spelled."""
    canonical = json.dumps([operation, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def once(session: WriteSession, attempted: Attempted | None, act: Callable[[], Answer]) -> Answer:
    """The answer of `act`, which is called unless the same request was answered before.

    Raises:
        IdempotencyBusyError: the first request of this key is not answered yet.
        IdempotencyReuseError: the key belongs to another request.
    """
    if attempted is None:
        return act()
    # Held until the transaction ends: then the first request's record is there, or nothing is.
    if not session.scalar(select(func.pg_try_advisory_xact_lock(attempted.lock))):
        raise IdempotencyBusyError("the first request with this Idempotency-Key is not answered yet")
    known = answered(session, attempted)
    if known is not None:
        return known
    answer = act()
    _keep(session, attempted, answer)
    return answer


def answered(session: ReadSession, attempted: Attempted) -> Answer | None:
    """What the same request was answered before; None if it was not.

    Raises:
        IdempotencyReuseError: the key belongs to another request.
    """
    known = _find(session, attempted)
    if known is None:
        return None
    if known.request_digest != attempted.digest:
        raise IdempotencyReuseError(
            "this Idempotency-Key was sent before with another request", field="Idempotency-Key"
        )
    return Answer(known.status, known.location, known.body, replayed=True)


def _find(session: ReadSession, attempted: Attempted) -> IdempotencyKey | None:
    query = select(IdempotencyKey).where(
        # Not "is not distinct from": that would use no index.
        IdempotencyKey.owner_id.is_(None)
        if attempted.owner_id is None
        else IdempotencyKey.owner_id == attempted.owner_id,
        IdempotencyKey.key == attempted.key,
        IdempotencyKey.expires_at > func.now(),
    )
    return session.scalars(query).one_or_none()


def _keep(session: WriteSession, attempted: Attempted, answer: Answer) -> None:
    _clear(session)
    values = {
        "request_digest": attempted.digest,
        "status": answer.status,
        "location": answer.location,
        "body": answer.body,
        "expires_at": func.now() + seconds(KEPT.total_seconds()),
    }
    statement = insert(IdempotencyKey).values(owner_id=attempted.owner_id, key=attempted.key, **values)
    # An expired record of the same key may still be there.
    columns = [IdempotencyKey.owner_id, IdempotencyKey.key]
    session.execute(statement.on_conflict_do_update(index_elements=columns, set_=values))


def _clear(session: WriteSession) -> None:
    expired = (
        select(IdempotencyKey.id)
        .where(IdempotencyKey.expires_at <= func.now())
        .limit(CLEARED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    statement = delete(IdempotencyKey).where(IdempotencyKey.id.in_(expired))
    session.execute(statement.execution_options(synchronize_session=False))
