"""Between the submit form and the API's `JobSubmission`, both ways."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from ghosted_core.spec import (
    NAMED_CORPORA,
    RECOVERIES,
    STRATEGIES,
    Calibration,
    Evaluation,
    Finetune,
    JobSpec,
    Latency,
)
from services.dashboard.bounds import bound_lines, bounds_of
from services.dashboard.fields import NO, YES, Field, fields_of, read, written
from services.errors import InvalidRequestError

# Text fields of their own, beside the settings that schemas describe.
PLAIN = ("model", "layers", "dtype", "deadline_seconds")
LATENCY = "evaluation.latency"
SECTIONS: Mapping[str, type[BaseModel]] = {
    "calibration": Calibration,
    "finetune": Finetune,
    "evaluation": Evaluation,
    LATENCY: Latency,
}
# Those that a job may do without, and whether it has them if the form does not say.
SWITCHES = {"finetune": NO, "evaluation": YES, LATENCY: NO}
METHODS: Mapping[str, Mapping[str, type[BaseModel]]] = {
    "strategy": {kind.model_fields["name"].default: kind for kind in STRATEGIES},
    "recovery": {kind.model_fields["name"].default: kind for kind in RECOVERIES},
}
DEFAULTS = {
    "strategy": JobSpec.model_fields["strategy"].default.name,
    "recovery": JobSpec.model_fields["recovery"].default.name,
    "calibration.dataset": Calibration.model_fields["dataset"].default.alias,
    **SWITCHES,
    "evaluation.prompts": "\n".join(Evaluation.model_fields["prompts"].default),
    "dtype": "auto",
}
Values = Mapping[str, str]


@dataclass(frozen=True)
class Flaw:
    """Something wrong in the form; `field` is empty where it is no single field's."""

    field: str
    detail: str


def settings_of(part: str, values: Values) -> list[Field]:
    """The settings of a section, or of the method that is chosen."""
    if part in SECTIONS:
        return fields_of(SECTIONS[part], part, values)
    chosen = METHODS[part].get(values.get(part, DEFAULTS[part]))
    return [] if chosen is None else fields_of(chosen, part, values)


def submission_of(values: Values) -> dict[str, Any]:
    """What the form asks for, as the body of a submission.

    Raises:
        InvalidRequestError: the advanced part is no JSON object, or a line of the gate no bound.
    """
    body: dict[str, Any] = {name: _plain(name, values[name]) for name in PLAIN if values.get(name)}
    for method in METHODS:
        name = values.get(method) or DEFAULTS[method]
        body[method] = {"name": name, **_settings(method, values)}
    if body["strategy"]["name"] == "explicit":
        body.pop("layers", None)
    body["calibration"] = _settings("calibration", values) | _dataset(values, "calibration")
    if _wants("finetune", values):
        body["finetune"] = _settings("finetune", values) | _dataset(values, "finetune")
    body["evaluation"] = _evaluation(values) if _wants("evaluation", values) else None
    body["labels"] = _labels(values.get("labels", ""))
    return _merged(body, advanced(values.get("advanced", "")))


def _wants(part: str, values: Values) -> bool:
    return (values.get(part) or SWITCHES[part]) != NO


def _plain(name: str, text: str) -> Any:
    return int(text) if name == "deadline_seconds" and text.isdecimal() else text


def _settings(part: str, values: Values) -> dict[str, Any]:
    # What is left empty is left out, so that it takes its default.
    return {
        field.name.removeprefix(f"{part}."): read(field, values[field.name])
        for field in settings_of(part, values)
        if values.get(field.name)
    }


def _dataset(values: Values, part: str) -> dict[str, Any]:
    text = values.get(f"{part}.dataset", "")
    return {"dataset": {"upload": text} if _is_id(text) else text} if text else {}


def _is_id(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False


def _evaluation(values: Values) -> dict[str, Any]:
    found = _settings("evaluation", values) | _dataset(values, "evaluation")
    corpora = [name for name in NAMED_CORPORA if values.get(f"evaluation.corpora.{name}") == YES]
    tasks = [part.strip() for part in values.get("evaluation.tasks", "").split(",") if part.strip()]
    prompts = values.get("evaluation.prompts", DEFAULTS["evaluation.prompts"])
    lines = [line.strip() for line in prompts.splitlines() if line.strip()]
    if _wants(LATENCY, values):
        found["latency"] = _settings(LATENCY, values)
    gate = bounds_of(values.get("evaluation.gate", ""))
    return {**found, "corpora": corpora, "tasks": tasks, "prompts": lines, "gate": gate}


def _labels(text: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def advanced(text: str) -> dict[str, Any]:
    """The part of the form that is written as JSON.

    Raises:
        InvalidRequestError: it is no JSON object.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("this is not JSON", field="advanced") from error
    if not isinstance(found, dict):
        raise InvalidRequestError("this is no JSON object", field="advanced")
    return found


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        both = isinstance(under, dict) and isinstance(value, Mapping)
        merged[name] = _merged(under or {}, value) if both else value
    return merged


def values_of(spec: Mapping[str, Any], labels: Mapping[str, str], deadline_seconds: int) -> dict[str, str]:
    """The form that asks for `spec` again; what it has no field for stands in its advanced part."""
    values = {"deadline_seconds": str(deadline_seconds), "dtype": spec["dtype"]}
    values["labels"] = "\n".join(f"{name}={text}" for name, text in labels.items())
    values["model"] = _model_text(spec["model"])
    values["layers"] = written(spec["layers"])
    for method in METHODS:
        values[method] = spec[method]["name"]
    for part in (*METHODS, *SECTIONS):
        for name, value in (_part(spec, part) or {}).items():
            values |= _written(f"{part}.{name}", value)
    for part in SWITCHES:
        values[part] = NO if _part(spec, part) is None else YES
    left = _left_out(values, spec)
    return values | ({"advanced": json.dumps(left, indent=2)} if left else {})


def _part(spec: Mapping[str, Any], path: str) -> Any:
    found: Any = spec
    for name in path.split("."):
        found = (found or {}).get(name)
    return found


def _written(path: str, value: Any) -> dict[str, str]:
    if path.endswith(".dataset"):
        return {path: str(value.get("alias") or value.get("id") or "") if value else ""}
    if path == "evaluation.prompts":
        return {path: "\n".join(value)}
    if path == "evaluation.tasks":
        return {path: ", ".join(one["name"] for one in value)}
    if path == "evaluation.gate":
        return {path: bound_lines(value)}
    if path == "evaluation.corpora":
        return {f"{path}.{one['name']}": YES for one in value}
    return {} if path.endswith(".name") or isinstance(value, dict) else {path: written(value)}


def _model_text(model: Mapping[str, Any]) -> str:
    if model["kind"] != "hub":
        return str(model.get("alias") or "")
    return f"{model['id']}@{model['revision']}" if model.get("revision") else str(model["id"])


def _left_out(values: Values, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of `spec` that the form's fields do not say."""
    told = submission_of(values)
    told = {name: value for name, value in told.items() if name in JobSpec.model_fields}
    try:
        asked = JobSpec.model_validate(told).model_dump(mode="json")
    except ValueError:
        return dict(spec)
    return _different(asked, spec)


def _different(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be merged over `have` to make it `wanted`; no more, so that fields can still be edited."""
    found: dict[str, Any] = {}
    for name, value in wanted.items():
        known = have.get(name)
        if known == value:
            continue
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        found[name] = _different(known or {}, value) if both else value
    return found


def field_of(location: Sequence[Any], known: frozenset[str]) -> str:
    """The form's field that an error at `location` belongs to; empty if it is no single field's.

    Names of kinds, which stand between a choice and its settings, are no part of a field's name.
    """
    parts = [str(part) for part in location]
    for end in range(len(parts), 0, -1):
        for name in (".".join(parts[:end]), f"{parts[0]}.{parts[end - 1]}"):
            if name in known:
                return name
    return ""
