"""What is asked of every query parameter."""

import re
from typing import Any

from fastapi import Request

from services.errors import InvalidRequestError

VERSIONED = "/v1/"
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def check_rfc3339(value: Any) -> Any:
    """`value`, if it is a time with its zone as RFC 3339 writes it.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("not a time with its zone as RFC 3339 has it, such as 2026-01-31T12:00:00Z")
    return value


# Waits for nobody, so it needs no thread; every request comes by here, that for /healthz too.
async def check_parameters(request: Request) -> None:
    """Return if the operation has every query parameter of `request`; probes may send what they like.

    A misspelled filter must not list everything.

    Raises:
        InvalidRequestError: it has not.
    """
    if not request.query_params or not request.url.path.startswith(VERSIONED):
        return
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidRequestError(
                f"there is no query parameter of this name; there are: {listed}", field=name[:80]
            )
