"""The gate as lines of text, such as `perplexity: max_ratio=1.5`, and as the spec has it."""

from collections.abc import Iterable, Mapping
from typing import Any

from ghosted_core.spec import Bound
from services.errors import InvalidRequestError

LIMITS = tuple(name for name in Bound.model_fields if name != "metric")
FORM = "A bound is written metric: limit=number, such as perplexity: max_ratio=1.5"


def bounds_of(text: str) -> list[dict[str, Any]]:
    """A bound a line, for the spec to check.

    Raises:
        InvalidRequestError: a line is none.
    """
    return [_bound(line) for line in text.splitlines() if line.strip()]


def _bound(line: str) -> dict[str, Any]:
    metric, _, limits = line.partition(":")
    pairs = [one.partition("=") for one in limits.split(",")]
    try:
        read = {name.strip(): float(value) for name, _, value in pairs}
    except ValueError as error:
        raise InvalidRequestError(FORM, field="evaluation.gate") from error
    if not read.keys() <= set(LIMITS):
        raise InvalidRequestError(f"{FORM}; limits are {', '.join(LIMITS)}", field="evaluation.gate")
    return {"metric": metric.strip(), **read}


def bound_lines(bounds: Iterable[Mapping[str, Any]]) -> str:
    """The same as text."""
    return "\n".join(f"{one['metric']}: {_limits(one)}" for one in bounds)


def _limits(bound: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={bound[name]}" for name in LIMITS if bound.get(name) is not None)
