"""All SQL about keys. Times are the database's own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select, update

from services.auth.keys import fresh_key, matches, prefix_of
from services.auth.scopes import USUAL_SCOPES, Caller, sorted_scopes
from services.db.models import ApiKey
from services.db.sessions import ReadSession, WriteSession

# How exact `last_used_at` is.
USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class FoundKey:
    """A key in use, and whether it is time to note that it is used."""

    caller: Caller
    use_to_note: bool


def create_key(
    session: WriteSession,
    name: str,
    *,
    scopes: Iterable[str] = USUAL_SCOPES,
    lasts: timedelta | None = None,
) -> str:
    """A new key named `name` exists; returns its plain text, which nothing keeps.

    Raises:
        ValueError: a scope that does not exist.
    """
    fresh = fresh_key()
    expires_at = None if lasts is None else func.now() + lasts
    session.add(
        ApiKey(
            name=name,
            prefix=fresh.prefix,
            digest=fresh.digest,
            scopes=sorted_scopes(scopes),
            expires_at=expires_at,
        )
    )
    session.flush()
    return fresh.plain


def find_key(session: ReadSession, plain: str) -> FoundKey | None:
    """The key in use whose plain text this is; None if it is unknown, revoked or past its time."""
    prefix = prefix_of(plain)
    if prefix is None:
        return None
    query = select(ApiKey, use_to_note().label("use_to_note")).where(ApiKey.prefix == prefix, in_use())
    row = session.execute(query).one_or_none()
    if row is None or not matches(plain, row.ApiKey.digest):
        return None
    return FoundKey(Caller(row.ApiKey.id, frozenset(row.ApiKey.scopes), prefix), row.use_to_note)


def note_use(session: WriteSession, key_id: UUID) -> None:
    """The key's row says that it was used within the last minute."""
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == key_id, use_to_note())
        .values(last_used_at=func.now())
        .execution_options(synchronize_session=False)
    )


def list_keys(session: ReadSession) -> Sequence[ApiKey]:
    """All keys, also those that open nothing any more, oldest first."""
    return session.scalars(select(ApiKey).order_by(ApiKey.id)).all()


def get_key(session: ReadSession, prefix: str) -> ApiKey | None:
    """The key of this prefix, in use or not."""
    return session.scalars(select(ApiKey).where(ApiKey.prefix == prefix)).one_or_none()


def revoke_key(session: WriteSession, prefix: str) -> bool:
    """No key of this prefix is in use; returns whether one was not revoked yet."""
    statement = (
        update(ApiKey)
        .where(ApiKey.prefix == prefix, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(ApiKey.id)
        .execution_options(synchronize_session=False)
    )
    return session.scalars(statement).one_or_none() is not None


def in_use() -> ColumnElement[bool]:
    """Whether a key opens anything: it is neither revoked nor past its time."""
    return ApiKey.revoked_at.is_(None) & or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now())


def use_to_note() -> ColumnElement[bool]:
    """Whether it is time to note that a key is used."""
    return or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < func.now() - USE_NOTED_EVERY)
