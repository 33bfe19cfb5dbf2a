"""The files that pages load: our own, and those inside of installed packages. No other file is served."""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

from fastapi import APIRouter, Request, Response

from services.errors import RouteNotFoundError

HEADERS = {
    # The address holds the content's hash, so what lies at it never changes.
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'",
}
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Of other packages: the name here, the package, the path within it.
PACKAGED = (("plotly.min.js", "plotly", "package_data/plotly.min.js"),)
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """A file that pages load."""

    name: str
    content: bytes
    digest: str

    @property
    def media_type(self) -> str:
        """What it is, for browsers; they are told not to guess."""
        return TYPES[PurePath(self.name).suffix]


@cache
def assets() -> Mapping[str, Asset]:
    """All files that are served, by name; they do not change while the process runs."""
    return {name: _read(name, source) for name, source in _sources()}


def address(name: str) -> str:
    """The address of a file.

    Raises:
        KeyError: there is none of this name.
    """
    return f"/static/{name}?v={assets()[name].digest}"


def _sources() -> Iterator[tuple[str, Traversable]]:
    for source in (files("services.dashboard") / "static").iterdir():
        if PurePath(source.name).suffix in TYPES:
            yield source.name, source
    for name, package, path in PACKAGED:
        yield name, files(package).joinpath(path)


def _read(name: str, source: Traversable) -> Asset:
    content = source.read_bytes()
    return Asset(name, content, hashlib.sha256(content).hexdigest()[:16])


@cache
def compressed(name: str) -> bytes:
    """The file's content with gzip; made once, for the chart library is long."""
    return gzip.compress(assets()[name].content, mtime=0)


@router.get("/static/{name}")
def get_asset(request: Request, name: str) -> Response:
    """A file that pages load."""
    asset = assets().get(name)
    if asset is None:
        raise RouteNotFoundError(f"nothing is at /static/{name}")
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return Response(asset.content, media_type=asset.media_type, headers=HEADERS)
    headers = {**HEADERS, "Content-Encoding": "gzip"}
    return Response(compressed(name), media_type=asset.media_type, headers=headers)
