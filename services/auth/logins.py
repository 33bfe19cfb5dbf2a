"""Logins of the dashboard: a key is shown once, and a random text in a cookie stands for it afterwards.

All SQL about logins. Of the random text only the SHA-256 is kept, so the table opens nothing.
"""

import secrets
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from sqlalchemy import CursorResult, delete, func, select

from services.auth.keys import digest_of
from services.auth.repository import in_use, use_to_note
from services.auth.scopes import Caller
from services.db.models import ApiKey, Login
from services.db.sessions import ReadSession, WriteSession
from services.jobs.rows import seconds

TOKEN_BYTES = 32


@dataclass(frozen=True)
class FoundLogin:
    """Who is logged in, by which key, and whether it is time to note that the key is used."""

    caller: Caller
    key_name: str
    use_to_note: bool


def begin(session: WriteSession, key_id: UUID, *, lasts_seconds: float) -> str:
    """Someone is logged in with the key; returns the text for the cookie, which nothing keeps."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    login = Login(digest=digest_of(token), key_id=key_id, expires_at=func.now() + seconds(lasts_seconds))
    session.add(login)
    session.flush()
    return token


def find(session: ReadSession, token: str) -> FoundLogin | None:
    """Who is logged in with `token`; None if nobody is, or if the login or its key has ended."""
    query = (
        select(ApiKey, use_to_note())
        .join(Login, Login.key_id == ApiKey.id)
        .where(Login.digest == digest_of(token), Login.expires_at > func.now(), in_use())
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    key, to_note = row
    return FoundLogin(Caller(key.id, frozenset(key.scopes), key.prefix), key.name, to_note)


def end(session: WriteSession, token: str) -> None:
    """Nobody is logged in with `token`."""
    session.execute(delete(Login).where(Login.digest == digest_of(token)))


def forget_ended(session: WriteSession) -> int:
    """Logins past their time are not in the table; returns how many there were."""
    done = session.execute(delete(Login).where(Login.expires_at <= func.now()))
    return cast("CursorResult[tuple[()]]", done).rowcount
