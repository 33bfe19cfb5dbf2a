"""Options that several commands share, as dataclasses: declared once, and the same everywhere."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the fields of a dataclass in place of each parameter that is one.

    The dataclass's annotations are those of options; what is given for them reaches `command` as one value.
    """
    signature = inspect.signature(command)
    bundles = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if _is_bundle(parameter.annotation)
    }

    @wraps(command)
    def spread_out(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        command(**given)

    shown = [one for parameter in signature.parameters.values() for one in _shown(parameter)]
    # Where `inspect`, and through it typer, looks first.
    spread_out.__dict__["__signature__"] = signature.replace(parameters=shown)
    return spread_out


def _is_bundle(annotation: Any) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _shown(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not _is_bundle(parameter.annotation):
        yield parameter
        return
    for field in fields(parameter.annotation):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type
        )
