"""Which addresses are the dashboard's own."""

import re

from fastapi import Request

HOME = "/jobs"
TWIN = ".json"
# A path of this server, and nothing that a browser could read as another one: no `//`, no backslash.
_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,1023}")


def local_target(wanted: str | None) -> str:
    """`wanted` if it is a path of this server, else the first page."""
    return wanted if wanted is not None and _LOCAL.fullmatch(wanted) else HOME


def wants_json(request: Request) -> bool:
    """Whether this is the JSON twin of a page."""
    return request.url.path.endswith(TWIN)


def twin_of(request: Request) -> str:
    """The address of the page's data as JSON."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{TWIN}{query}"
