"""From command-line arguments to a `JobSpec`."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ghosted_core.catalog import Catalog
from ghosted_core.errors import InvalidSpecError
from ghosted_core.registry import read_registry
from ghosted_core.spec import STRATEGIES, Explicit, JobSpec, is_hub_id, parse_indices

# How a text that an option names stands in a spec; None stays None.
ReadText = Callable[[str | None], Any]

CACHE_VARIABLE = "GHOSTED_CACHE"
CATALOG_VARIABLE = "GHOSTED_CATALOG"


def cache_folder(given: Path | None) -> Path:
    """Where downloads are kept: as given, as $GHOSTED_CACHE says, or the user's cache folder."""
    if given is not None:
        return given.expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ghosted"


def local_catalog() -> Catalog:
    """The aliases that commands know which compute here: built in, and in the file $GHOSTED_CATALOG.

    Raises:
        InvalidCatalogError: the file cannot be used.
    """
    named = os.environ.get(CATALOG_VARIABLE)
    return read_registry(Path(named).expanduser() if named else None).catalog()


def model_reference(text: str, revision: str | None) -> dict[str, Any] | str:
    """A path if one exists or it looks like one, else a Hub id, else an alias.

    Raises:
        InvalidSpecError: another form, or a revision of what has none.
    """
    path = Path(text).expanduser()
    if text.startswith((".", "/", "~")) or text.endswith(".gguf") or path.exists():
        _check_no_revision(text, revision)
        return {"kind": "local", "path": str(path)}
    if "/" in text and "@" not in text and not is_hub_id(text):
        raise InvalidSpecError(f"'{text}' is neither a folder here nor a Hub id of the form owner/name.")
    return hub_model(text, revision)


def hub_model(text: str, revision: str | None) -> dict[str, Any] | str:
    """A Hub id, at `revision` if one is given, else an alias or an id that names its revision.

    Raises:
        InvalidSpecError: a revision of what has none, or one already.
    """
    if is_hub_id(text):
        return {"kind": "hub", "id": text, "revision": revision}
    _check_no_revision(text, revision)
    return text


def _check_no_revision(text: str, revision: str | None) -> None:
    if revision is not None:
        raise InvalidSpecError(
            f"--revision does not go with '{text}'.",
            advice="Give it with a Hub id owner/name; owner/name@REVISION says the same.",
        )


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
    try:
        return parse_indices(text)
    except ValueError as error:
        raise InvalidSpecError(f"The layers '{text}' cannot be read: {error}.") from error


# Shorter than what Python refuses to read.
NUMBER = r"[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?"


def strategy_choice(text: str, remove: str | None) -> dict[str, Any]:
    """'NAME' or 'NAME:SETTING=VALUE,...' as a strategy; the layers to remove, if named, are one too.

    Raises:
        InvalidSpecError: another form.
    """
    if remove is not None:
        return {"name": "explicit", "indices": layer_indices(remove)}
    name, _, settings = text.partition(":")
    return {**{key: setting(value) for key, value in _pairs(settings)}, "name": name}


def finetune_choice(settings: str | None, *, asked: bool, read: ReadText) -> dict[str, Any] | None:
    """'SETTING=VALUE,...' as the training of a spec; None if neither settings nor training were asked for.

    Raises:
        InvalidSpecError: another form.
    """
    if settings is None:
        return {} if asked else None
    return {key: read(value) if key == "dataset" else setting(value) for key, value in _pairs(settings)}


def _pairs(settings: str) -> list[tuple[str, str]]:
    pairs = [setting.partition("=") for setting in settings.split(",") if settings]
    if not all(key and separator for key, separator, _ in pairs):
        raise InvalidSpecError(f"The settings '{settings}' are not of the form SETTING=VALUE,...")
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def setting(text: str) -> str | float | bool:
    """What a spec knows the word as: a switch, a number, or the word itself."""
    switches = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() in switches:
        return switches[text.lower()]
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(NUMBER, text) else text


def strategy_names() -> str:
    """What can be chosen without naming layers, for help texts."""
    return ", ".join(form.model_fields["name"].default for form in STRATEGIES if form is not Explicit)


def calibration_choice(
    dataset: Any, sequences: int | None, sequence_length: int | None, held_out: int | None, seed: int | None
) -> dict[str, Any]:
    """The calibration part of a spec; what was not given is left to its defaults."""
    return without_none(
        {
            "dataset": dataset,
            "sequences": sequences,
            "sequence_length": sequence_length,
            "held_out_sequences": held_out,
            "seed": seed,
        }
    )


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the spec has the defaults of the others."""
    return {key: value for key, value in values.items() if value is not None}


def job_spec(fields: dict[str, Any]) -> JobSpec:
    """The validated spec.

    Raises:
        pydantic.ValidationError: a field is missing, unknown or out of bounds.
    """
    return JobSpec.model_validate(fields)
