"""A spec in words: which model, which strategy, how much; and all of it as paths and texts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST_TEXT = 300


def model_name(spec: Mapping[str, Any]) -> str:
    """The model's repository, alias or folder."""
    return reference_name(spec.get("model"))


def reference_name(reference: Any) -> str:
    """What a reference to a model or a text names."""
    if not isinstance(reference, Mapping):
        return "unknown"
    named = (reference.get(key) for key in ("id", "alias", "path", "upload_id"))
    return next((str(name) for name in named if name), "unknown")


def choice_name(spec: Mapping[str, Any], field: str) -> str:
    """The name of a chosen strategy or repair."""
    chosen = spec.get(field)
    return str(chosen.get("name", "unknown")) if isinstance(chosen, Mapping) else "unknown"


def amount(spec: Mapping[str, Any], layer_count: int | None, removed_count: int | None) -> str:
    """How many layers go, such as "7 of 30"; as it was asked for where the model is not known."""
    asked = removed_count if removed_count is not None else _asked(spec)
    return str(asked) if layer_count is None else f"{asked} of {layer_count}"


def _asked(spec: Mapping[str, Any]) -> str:
    strategy = spec.get("strategy")
    indices = strategy.get("indices") if isinstance(strategy, Mapping) else None
    return str(len(indices)) if isinstance(indices, list) else str(spec.get("layers") or "unknown")


def flat(spec: Mapping[str, Any]) -> dict[str, str]:
    """Each value of the spec under its path, such as "calibration.sequences"; lists as JSON."""
    return dict(_walk("", spec))


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _walk(f"{path}.{name}" if path else str(name), item)
    else:
        yield path, _text(value)


def _text(value: Any) -> str:
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return told if len(told) <= LONGEST_TEXT else f"{told[:LONGEST_TEXT]}…"
