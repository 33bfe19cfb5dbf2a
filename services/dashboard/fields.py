"""Form fields out of JSON schemas: what a method can be told, its form asks for."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Kind = Literal["text", "integer", "number", "switch", "choice"]
NO = "false"
YES = "true"


@dataclass(frozen=True)
class Field:
    """A setting: `default` is the text that stands for it; `value` what the user has put in its place."""

    name: str
    title: str
    kind: Kind
    default: str = ""
    value: str = ""
    choices: Sequence[str] = ()
    help: str = ""
    optional: bool = False


@dataclass(frozen=True)
class About:
    """What a method or a section is, in a sentence; and what its settings mean, in paragraphs.

    Names of settings stand between backticks.
    """

    short: str
    more: Sequence[str] = ()


def about(model: type[BaseModel]) -> About:
    """As the model itself is described."""
    first, *rest = inspect.cleandoc(model.__doc__ or "").split("\n\n")
    return About(" ".join(first.split()), [" ".join(one.split()) for one in rest])


def fields_of(
    model: type[BaseModel], prefix: str, values: Mapping[str, str], without: frozenset[str] = frozenset()
) -> list[Field]:
    """The plain settings of `model`, named `prefix.setting`; whatever is nested is left out."""
    schema = model.model_json_schema()
    made = [
        _field(f"{prefix}.{name}", name, described, values)
        for name, described in schema.get("properties", {}).items()
        if name not in without and name != "name"
    ]
    return [field for field in made if field is not None]


def _field(path: str, name: str, described: Mapping[str, Any], values: Mapping[str, str]) -> Field | None:
    options = described.get("anyOf", [described])
    kind = _kind([one for one in options if one.get("type") != "null"])
    if kind is None:
        return None
    default = written(described.get("default"))
    return Field(
        name=path,
        title=name.replace("_", " ").capitalize(),
        kind=kind,
        default=default,
        value=values.get(path, default),
        choices=tuple(str(one) for one in described.get("enum", ())),
        help=described.get("description", ""),
        optional=any(one.get("type") == "null" for one in options),
    )


def _kind(options: Sequence[Mapping[str, Any]]) -> Kind | None:
    kinds = [one.get("type") for one in options]
    if len(options) == 1 and "enum" in options[0]:
        return "choice"
    if kinds == ["boolean"]:
        return "switch"
    if kinds == ["integer"]:
        return "integer"
    if kinds == ["number"]:
        return "number"
    plain = {"string", "integer", "number"}
    of_indices = kinds == ["string", "array"]
    # A number or a word, such as 1e-6 or auto; or indices and ranges.
    return "text" if of_indices or (kinds and plain.issuperset(kinds)) else None


def written(value: Any) -> str:
    """`value` as the text of a form's field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def read(field: Field, text: str) -> Any:
    """The value that `text` stands for; what stands for none is left for the spec to refuse."""
    if field.kind == "switch":
        return text == YES
    if field.kind == "choice":
        return text
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
