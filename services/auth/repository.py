"""All SQL about keys."""

from uuid import UUID

from sqlalchemy import func, select, update

from services.auth.keys import fresh_key, matches, prefix_of
from services.db.models import ApiKey
from services.db.sessions import ReadSession, WriteSession


def create_key(session: WriteSession, name: str) -> str:
    """A new key named `name` exists; returns its plain text, which nothing keeps."""
    fresh = fresh_key()
    session.add(ApiKey(name=name, prefix=fresh.prefix, digest=fresh.digest))
    session.flush()
    return fresh.plain


def find_key(session: ReadSession, plain: str) -> UUID | None:
    """The id of the key in use whose plain text this is; None if there is none."""
    prefix = prefix_of(plain)
    if prefix is None:
        return None
    query = select(ApiKey).where(ApiKey.prefix == prefix, ApiKey.revoked_at.is_(None))
    key = session.scalars(query).one_or_none()
    return key.id if key is not None and matches(plain, key.digest) else None


def revoke_key(session: WriteSession, prefix: str) -> bool:
    """No key of this prefix is in use; returns whether one was."""
    statement = (
        update(ApiKey)
        .where(ApiKey.prefix == prefix, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(ApiKey.id)
        .execution_options(synchronize_session=False)
    )
    return session.scalars(statement).one_or_none() is not None
