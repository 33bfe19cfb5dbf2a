"""JSON files of strangers, read so that every parser after ours sees the same thing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ghosted_core.errors import CorruptModelError, UnsafeModelError

MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = 64 << 20
MAX_DIGITS = 64


def read_json_object(path: Path, *, max_bytes: int) -> dict[str, Any]:
    """The object in a JSON file of at most `max_bytes`.

    Raises:
        CorruptModelError: missing, not UTF-8, not JSON or not an object.
        UnsafeModelError: larger than that, nested too deeply, or with a key twice, a number that is
            not finite or an integer of more than 64 digits.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise UnsafeModelError(f"{path.name} is larger than {max_bytes} bytes.")
        content = path.read_bytes()
    except OSError as error:
        raise CorruptModelError(f"{path.name} cannot be read.") from error
    return parse_json_object(content, path.name)


def parse_json_object(content: bytes, name: str) -> dict[str, Any]:
    """The object in `content`, under the rules of `read_json_object`; `name` is for messages."""
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=lambda pairs: _unique(pairs, name),
            parse_constant=lambda constant: _refuse_constant(constant, name),
            parse_int=lambda digits: _bounded_integer(digits, name),
            parse_float=lambda digits: _finite_float(digits, name),
        )
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorruptModelError(f"{name} is not valid JSON.") from error
    except RecursionError as error:
        raise UnsafeModelError(f"{name} is nested too deeply.") from error
    if not isinstance(value, dict):
        raise CorruptModelError(f"{name} does not hold a JSON object.")
    return value


def walk_items(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value at any depth of parsed JSON."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            yield from current.items()
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)


def _unique(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        # Two parsers may pick different ones, and then we would have checked the wrong one.
        raise UnsafeModelError(f"{name} holds the same key twice in one object.")
    return result


def _refuse_constant(constant: str, name: str) -> Any:
    raise UnsafeModelError(f"{name} holds {constant} where a finite number is needed.")


def _bounded_integer(digits: str, name: str) -> int:
    # Reading a number of a million digits takes minutes. Tokenizers do write 10**30 for "no limit".
    if len(digits) > MAX_DIGITS:
        raise UnsafeModelError(f"{name} holds an integer of more than {MAX_DIGITS} digits.")
    return int(digits)


def _finite_float(digits: str, name: str) -> float:
    value = float(digits)
    if value in {float("inf"), float("-inf")}:
        raise UnsafeModelError(f"{name} holds a number too large for a float.")
    return value
