"""A spec in words: which model, which strategy, how much; and all of it as paths and texts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from services.dashboard.formatting import shortened
from services.dashboard.job_rows import Removal, model_of, removal_of, title_of


def model_name(spec: Mapping[str, Any]) -> str:
    """The model's repository, alias or folder."""
    return model_of(spec)[0]


def removal_words(removal: Removal) -> str:
    """How many layers go, such as "7 of 30"; as it was asked for where the model is not known."""
    if removal.count is None:
        return removal.asked
    return str(removal.count) if removal.of is None else f"{removal.count} of {removal.of}"


def job_words(spec: Mapping[str, Any]) -> str:
    """A job in a line, to tell it from others."""
    amount = f"{removal_words(removal_of(spec, None))} layers"
    return " · ".join((model_name(spec), amount, title_of(spec["strategy"]), title_of(spec["recovery"])))


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
    return shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
