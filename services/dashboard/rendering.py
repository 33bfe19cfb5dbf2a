"""A page is a frozen dataclass. Its template sees exactly its fields, and what `common` adds to all pages.

The JSON twin is the same dataclass, so nothing is on a page that a program cannot read.
"""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import TypeAdapter

from ghosted_core.errors import GhostedError
from services.dashboard import assets, charts, formatting
from services.dashboard.urls import twin_of
from services.dashboard.user import User
from services.errors import ServiceError
from services.jobs.caching import holds
from services.problems import Problem, problem_of

HTML = "text/html; charset=utf-8"
PLACES = (("Jobs", "/jobs"), ("Submit", "/submit"), ("Compare", "/compare"), ("System", "/system"))


@dataclass(frozen=True)
class Place:
    """An entry of the navigation."""

    title: str
    path: str
    current: bool


@dataclass(frozen=True)
class ErrorPage:
    """A request that could not be served, and what to try."""

    problem: Problem


@cache
def environment() -> Environment:
    """Templates that escape everything and know every name that they use."""
    made = Environment(
        loader=PackageLoader("services.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("size", "count", "duration", "figure", "share", "clock", "iso"):
        made.filters[name] = getattr(formatting, name)
    made.globals["asset"] = assets.address
    made.globals["style_marks"] = charts.style_marks
    return made


def common(request: Request, viewer: User | None) -> dict[str, Any]:
    """What each template sees beside the page's own fields.

    `viewer` is who looks (None: nobody yet), `csrf_token` goes into every form, `nav` says where one
    can go and is, `twin` is the address of the page's data, `now` when this was made.
    """
    path = request.url.path
    return {
        "viewer": viewer,
        "csrf_token": viewer.csrf_token if viewer is not None else "",
        "nav": [Place(title, at, path == at or path.startswith(f"{at}/")) for title, at in PLACES],
        "twin": twin_of(request),
        "now": datetime.now(UTC),
    }


def render(
    request: Request,
    template_name: str,
    page: Any,
    viewer: User | None,
    *,
    status: int = 200,
    policy: str | None = None,
) -> Response:
    """The page as HTML; 304 if the browser has it and its data is still the same.

    `policy` takes the place of the strict Content-Security-Policy, see `page_routes.CHARTS_POLICY`.
    """
    headers = {} if policy is None else {"Content-Security-Policy": policy}
    if status == 200 and request.method == "GET":  # noqa: PLR2004
        headers["ETag"] = _tag(
            page, template_name, repr(viewer), viewer.csrf_token if viewer is not None else ""
        )
        if holds(request.headers.get("If-None-Match", ""), headers["ETag"]):
            return Response(status_code=304, headers=headers)
    # Not asdict: parts of a page keep their types, which templates and filters know.
    shown = {field.name: getattr(page, field.name) for field in fields(page)}
    text = environment().get_template(template_name).render({**common(request, viewer), **shown})
    return Response(text, status_code=status, media_type=HTML, headers=headers)


def twin(request: Request, page: Any) -> Response:
    """The page's data as JSON, in which no number is infinite or not a number."""
    body = as_json(page)
    headers = {"ETag": _tag(page)}
    if holds(request.headers.get("If-None-Match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def render_error(request: Request, error: GhostedError) -> Response:
    """A page that says what went wrong and what to try."""
    page = ErrorPage(problem_of(error))
    response = render(request, "error.html", page, None, status=page.problem.status)
    return with_patience(response, error)


def with_patience(response: Response, error: GhostedError) -> Response:
    """`response`, which says when to try again if `error` does."""
    if isinstance(error, ServiceError) and error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def as_json(page: Any) -> bytes:
    """The dataclass as JSON."""
    return _adapter(cast("Hashable", type(page))).dump_json(page)


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", kind))
    return adapter


def _tag(page: Any, *more: str) -> str:
    # Of the data rather than of the HTML, which holds running clocks.
    digest = hashlib.sha256(as_json(page))
    for one in (*more, *sorted(asset.digest for asset in assets.assets().values())):
        digest.update(one.encode())
    return f'"{digest.hexdigest()[:32]}"'
