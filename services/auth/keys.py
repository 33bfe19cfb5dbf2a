"""The form of a key: `ghosted_<prefix>_<secret>`. The prefix finds it, its SHA-256 proves it."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

PREFIX_BYTES = 4
SECRET_BYTES = 32
_FORM = re.compile(rf"ghosted_([0-9a-f]{{{2 * PREFIX_BYTES}}})_[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True)
class FreshKey:
    """A key that was just made. `plain` is shown once and stored nowhere."""

    plain: str
    prefix: str
    digest: str

    def __repr__(self) -> str:
        return f"FreshKey(prefix={self.prefix!r})"


def fresh_key() -> FreshKey:
    """A key of 256 random bits."""
    prefix = secrets.token_hex(PREFIX_BYTES)
    plain = f"ghosted_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return FreshKey(plain, prefix, digest_of(plain))


def prefix_of(plain: str) -> str | None:
    """The prefix of a well-formed key, else None."""
    match = _FORM.fullmatch(plain)
    return None if match is None else match[1]


def digest_of(plain: str) -> str:
    """SHA-256 in hexadecimal. A plain hash suffices: 256 random bits cannot be guessed."""
    return hashlib.sha256(plain.encode()).hexdigest()


def matches(plain: str, digest: str) -> bool:
    """Whether `digest` is that of `plain`; the time taken tells nothing about either."""
    return hmac.compare_digest(digest_of(plain), digest)
