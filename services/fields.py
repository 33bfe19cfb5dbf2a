"""Which field of a request a validator speaks of, in the words of the request."""

from collections.abc import Mapping, Sequence
from typing import Any

BODY = "body"


def field_at(location: Sequence[Any], body: Any = None) -> str:
    """The path of the wrong field at `location`, as pydantic tells it, within `body`.

    Pydantic also names the kind that it took a choice for, and goes on inside of what is a plain value to
    its sender, such as 'owner/name'. Neither is a field of the request.
    """
    first, *parts = location
    # The first part says body, query or path, which the user can see.
    told = [str(part) for part in (_sent(parts, body) if first == BODY else parts)]
    return ".".join(told) or str(first)


def _sent(parts: Sequence[Any], body: Any) -> list[Any]:
    told: list[Any] = []
    for part in parts:
        if isinstance(body, Mapping):
            # Compared one by one: what was sent as a name may be anything.
            if part not in body and part in (body.get("kind"), body.get("name")):
                continue
            body = body.get(part)
        elif isinstance(body, list) and isinstance(part, int) and part < len(body):
            body = body[part]
        else:
            break
        told.append(part)
    return told
