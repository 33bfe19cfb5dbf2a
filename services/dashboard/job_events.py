"""Events as lines that people read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.dashboard.formatting import shortened
from services.db.models import JobEvent

Payload = Mapping[str, Any]


@dataclass(frozen=True)
class EventLine:
    """Something that happened, in a line."""

    number: int
    attempt: int
    at: datetime
    type: str
    text: str


def event_lines(events: Sequence[JobEvent]) -> tuple[EventLine, ...]:
    """The same events, the latest first."""
    return tuple(
        EventLine(event.number, event.attempt, event.at, event.type, describe(event.type, event.payload))
        for event in reversed(events)
    )


def describe(kind: str, payload: Payload) -> str:
    """What the payload of an event of that type says."""
    return shortened(WORDS.get(kind, _as_json)(payload))


def _started(payload: Payload) -> str:
    total = payload.get("total")
    extent = "" if total is None else f": {total} {payload.get('unit')}"
    return f"{payload.get('stage')}{extent}"


def _finished(payload: Payload) -> str:
    return f"{payload.get('stage')} after {_number(payload.get('seconds'))} s"


def _chosen(payload: Payload) -> str:
    return f"layers {', '.join(map(str, payload.get('removed', ())))} of {payload.get('layer_count')} go"


def _metric(payload: Payload) -> str:
    value = payload.get("value")
    return f"{payload.get('name')} = {payload.get('reason') if value is None else _number(value)}"


def _requeued(payload: Payload) -> str:
    return f"{payload.get('cause')}; again after {_number(payload.get('delay_seconds'))} s"


def _failed(payload: Payload) -> str:
    return f"{payload.get('code')}: {payload.get('message')}"


def _succeeded(payload: Payload) -> str:
    return f"{payload.get('total_bytes')} bytes stored"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _as_json(payload: Payload) -> str:
    return json.dumps(payload, ensure_ascii=False) if payload else ""


WORDS: Mapping[str, Callable[[Payload], str]] = {
    "stage_started": _started,
    "stage_finished": _finished,
    "layers_chosen": _chosen,
    "metric": _metric,
    "requeued": _requeued,
    "failed": _failed,
    "succeeded": _succeeded,
    "claimed": lambda payload: f"by worker {payload.get('worker')}",
    "cancelled": lambda payload: str(payload.get("reason", "")),
    "submitted": lambda _: "",
}
