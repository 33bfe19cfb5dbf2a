"""docker-compose.yml as docker would read it: merged, with the variables filled in."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.yml"
# What the operator must set, as .env.example says.
SECRETS = {
    "POSTGRES_PASSWORD": "postgres-secret",
    "REDIS_PASSWORD": "redis-secret",
    "GHOSTED_S3_ACCESS_KEY": "access",
    "GHOSTED_S3_SECRET_KEY": "s3-secret",
    "GHOSTED_SECRET_KEY": "a-secret-of-32-characters-or-more",
}
VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?P<operator>:[-?])?(?P<argument>[^}]*)\})")


class MissingVariableError(Exception):
    """A variable that must be set is not."""


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its variables replaced.

    Raises:
        MissingVariableError: one of `${NAME:?...}` is not set.
    """

    def replacement(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        value = variables.get(found["name"], "")
        if not value and found["operator"] == ":?":
            raise MissingVariableError(f"{found['name']}: {found['argument']}")
        return value or (found["argument"] if found["operator"] == ":-" else "")

    return VARIABLE.sub(replacement, text)


def read() -> dict[str, Any]:
    """The file with its variables as they are written."""
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return content


def services(variables: Mapping[str, str] = SECRETS) -> dict[str, dict[str, Any]]:
    """Each service with its variables filled in."""
    found: dict[str, dict[str, Any]] = _filled(read()["services"], variables)
    return found


def environment(service: Mapping[str, Any], variables: Mapping[str, str] = SECRETS) -> dict[str, str]:
    """What a service's process finds in its environment; variables without a value are handed on."""
    given = service.get("environment", {})
    handed_on = {
        name: variables[name] for name, value in given.items() if value is None and name in variables
    }
    return {name: value for name, value in given.items() if value is not None} | handed_on


def texts(value: Any) -> Iterator[str]:
    """Every text in a document, keys aside."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def seconds(text: str) -> float:
    """A duration such as 1m30s."""
    parts = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    if parts is None:
        raise ValueError(text)
    return 60.0 * int(parts[1] or 0) + int(parts[2] or 0)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return fill_in(value, variables) if isinstance(value, str) else value
