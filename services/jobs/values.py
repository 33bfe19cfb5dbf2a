"""Keeps what JSON and PostgreSQL cannot hold out of the rows."""

import math
from dataclasses import dataclass
from typing import Any

_NUL_STAND_IN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Figure:
    """A finite value, or none and the reason why."""

    value: float | None
    reason: str | None


def figure(value: float | None) -> Figure:
    """`value` if JSON can say it, else what it was in a word."""
    if value is None:
        return Figure(None, "missing")
    if math.isnan(value):
        return Figure(None, "not_a_number")
    if math.isinf(value):
        return Figure(None, "infinite" if value > 0 else "negative_infinite")
    return Figure(float(value), None)


def storable(value: Any) -> Any:
    """`value` with null for infinities and not-a-numbers, and without characters that JSONB refuses.

    PostgreSQL stores neither U+0000 nor lone surrogates in text.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def storable_text(text: str) -> str:
    """`text` with a stand-in for each character that PostgreSQL refuses."""
    return text.replace("\0", _NUL_STAND_IN).encode("utf-8", "replace").decode("utf-8")
