"""From command-line arguments to a `JobSpec`."""

import os
import re
from pathlib import Path
from typing import Any

from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec, is_hub_id

CACHE_VARIABLE = "GHOSTED_CACHE"
LONGEST_RANGE = 100_000


def cache_folder(given: Path | None) -> Path:
    """Where downloads are kept: as given, as $GHOSTED_CACHE says, or the user's cache folder."""
    if given is not None:
        return given.expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ghosted"


def model_reference(text: str, revision: str | None) -> dict[str, Any] | str:
    """A path if one exists or it looks like one, else a Hub id, else an alias."""
    path = Path(text).expanduser()
    if text.startswith((".", "/", "~")) or text.endswith(".gguf") or path.exists():
        return {"kind": "local", "path": str(path)}
    if is_hub_id(text):
        return {"kind": "hub", "id": text, "revision": revision}
    if "/" in text and "@" not in text:
        raise InvalidSpecError(f"'{text}' is neither a folder here nor a Hub id of the form owner/name.")
    return text


def text_reference(text: str | None) -> dict[str, Any] | str | None:
    """A file if it exists or looks like one, else an alias; None stays None."""
    if text is None:
        return None
    path = Path(text).expanduser()
    if path.exists() or "/" in text or path.suffix:
        return {"kind": "local", "path": str(path)}
    return text


def layer_indices(text: str) -> tuple[int, ...]:
    """'3,5,8-12' as indices; ranges include both ends.

    Raises:
        InvalidSpecError: another form.
    """
    return tuple(index for part in text.split(",") for index in _range(part.strip()))


def _range(part: str) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if match is None:
        raise InvalidSpecError(f"'{part}' is neither a layer index nor a range like 8-12.")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 0 <= last - first < LONGEST_RANGE:
        raise InvalidSpecError(f"The range '{part}' does not run upwards.")
    return range(first, last + 1)


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the spec has the defaults of the others."""
    return {key: value for key, value in values.items() if value is not None}


def job_spec(fields: dict[str, Any]) -> JobSpec:
    """The validated spec.

    Raises:
        pydantic.ValidationError: a field is missing, unknown or out of bounds.
    """
    return JobSpec.model_validate(fields)
