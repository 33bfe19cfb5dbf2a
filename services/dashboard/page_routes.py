"""What every route of the dashboard does beside its own work: safe headers, and errors as pages."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError as PoolTimeoutError

from ghosted_core.errors import GhostedError
from services.dashboard.rendering import render_error
from services.dashboard.urls import wants_json
from services.dashboard.user import LoginNeededError
from services.errors import (
    DatabaseUnavailableError,
    InvalidRequestError,
    RouteNotFoundError,
    UnauthenticatedError,
)
from services.problems import respond

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
# Where nothing else is said: nothing loads but what lies here, and nothing inline runs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# The chart library writes styles of its own; scripts stay as they are.
CHARTS_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers send the forms of our own pages with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-store",
    "Vary": "Cookie, Authorization",
}


class PageRoute(APIRoute):
    """A route of the dashboard.

    An error becomes a page here, so transactions that write must end inside of the endpoint: one
    that a dependency opened would see no error, and commit.
    """

    def get_route_handler(self) -> Handler:
        """The route's own handler, with the errors and headers of the dashboard."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                response = await inner(request)
            except LoginNeededError as needed:
                response = _to_login(request, needed)
            except GhostedError as error:
                response = _problem(request, error)
            except RequestValidationError as error:
                response = _problem(request, _invalid(request, error))
            except (OperationalError, InterfaceError, PoolTimeoutError):
                response = _problem(request, DatabaseUnavailableError("the database does not answer"))
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handler


def page_router() -> APIRouter:
    """A router whose routes are pages; they are no part of the API's description."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def _to_login(request: Request, needed: LoginNeededError) -> Response:
    if wants_json(request):
        return respond(UnauthenticatedError(needed.message))
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = "" if request.method != "GET" or target == "/jobs" else f"?{urlencode({'next': target})}"
    return RedirectResponse(f"/login{query}", status_code=HTTPStatus.SEE_OTHER)


def _problem(request: Request, error: GhostedError) -> Response:
    return respond(error) if wants_json(request) else render_error(request, error)


def _invalid(request: Request, error: RequestValidationError) -> GhostedError:
    first = error.errors()[0]
    if first["loc"][0] == "path":
        return RouteNotFoundError(f"nothing is at {request.url.path}")
    return InvalidRequestError(first["msg"], field=".".join(str(part) for part in first["loc"][1:]))
