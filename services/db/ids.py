"""Identifiers that sort by the time at which they were made."""

import secrets
import time
from uuid import UUID

_RANDOM_BITS = 74
_VERSION_AND_VARIANT = (7 << 76) | (0b10 << 62)


def new_id() -> UUID:
    """A UUID of version 7: 48 bits of milliseconds since 1970, then 74 random bits (RFC 9562, 5.7)."""
    return uuid7(time.time_ns() // 1_000_000, secrets.randbits(_RANDOM_BITS))


def uuid7(milliseconds: int, noise: int) -> UUID:
    """The version 7 UUID of a time and 74 bits of `noise`."""
    high, low = noise >> 62, noise & ((1 << 62) - 1)
    return UUID(int=(milliseconds << 80) | _VERSION_AND_VARIANT | (high << 64) | low)
