"""Errors as problem documents (RFC 9457). Every answer that is not a success has this form."""

import logging
import re
from collections.abc import Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from ghosted_core.errors import (
    DataError,
    DataUnavailableError,
    GhostedError,
    HubUnavailableError,
    InvalidSpecError,
    SourceError,
)
from services.errors import (
    BadRequestError,
    DatabaseUnavailableError,
    InvalidRequestError,
    MethodNotAllowedError,
    RouteNotFoundError,
    ServiceError,
    UnauthenticatedError,
)
from services.fields import field_at
from services.request_log import REQUEST_ID, SCOPE_KEY

MEDIA_TYPE = "application/problem+json"
SHOWN_FLAWS = 20
# Where the error does not say itself when to try again.
RETRY_AFTER_SECONDS = 5

logger = logging.getLogger(__name__)


class Flaw(BaseModel):
    """One wrong field of a request."""

    model_config = ConfigDict(frozen=True)

    field: str
    detail: str


class Problem(BaseModel):
    """What went wrong, for programs (`code`) and for people (`detail`, `advice`)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="A URI that names the kind of problem.")
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable; docs/errors.md lists all.")
    advice: str = Field(description="What to try next.")
    field: str | None = Field(default=None, description="The field of the request that is wrong.")
    flaws: list[Flaw] | None = Field(default=None, description="All wrong fields, if there are several.")


class ProblemResponse(JSONResponse):
    """A problem document on the wire."""

    media_type = MEDIA_TYPE


def title_of(kind: type[GhostedError]) -> str:
    """The first sentence of the error's docstring: the same for every problem of its kind."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0].rstrip(".")


def status_of(error: GhostedError) -> int:
    """The HTTP status that an error is answered with."""
    if isinstance(error, ServiceError):
        return error.status
    if isinstance(error, HubUnavailableError | DataUnavailableError):
        return 503
    return 422 if isinstance(error, InvalidSpecError | SourceError | DataError) else 500


def problem_of(error: GhostedError, flaws: Sequence[Flaw] = ()) -> Problem:
    """The document that tells of `error`."""
    return Problem(
        type=f"urn:ghosted:problem:{error.code}",
        title=title_of(type(error)),
        status=status_of(error),
        detail=error.message,
        code=error.code,
        advice=error.hint,
        field=_field_of(error),
        flaws=list(flaws) or None,
    )


def _field_of(error: GhostedError) -> str | None:
    if isinstance(error, SourceError):
        return "model"
    return error.field if isinstance(error, ServiceError | InvalidSpecError) else None


def respond(error: GhostedError, flaws: Sequence[Flaw] = ()) -> ProblemResponse:
    """The response that tells of `error`."""
    problem = problem_of(error, flaws)
    content = problem.model_dump(mode="json", exclude_none=True)
    return ProblemResponse(content, status_code=problem.status, headers=_headers(error))


def _headers(error: GhostedError) -> dict[str, str]:
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    stated = error.retry_after_seconds if isinstance(error, ServiceError) else None
    if stated is None and status_of(error) != HTTPStatus.SERVICE_UNAVAILABLE:
        return {}
    return {"Retry-After": str(stated or RETRY_AFTER_SECONDS)}


def install(app: FastAPI) -> None:
    """Every error of `app` is answered with a problem document."""
    app.add_exception_handler(GhostedError, _on_ours)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for kind in (OperationalError, InterfaceError, PoolTimeoutError):
        app.add_exception_handler(kind, _on_database)
    app.add_exception_handler(Exception, _on_fault)


def _on_ours(_: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, GhostedError):
        raise error
    if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("%s: %s", error.code, error.message, exc_info=error)
    return respond(error)


def _on_http(request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, HTTPException):
        raise error
    kinds: dict[int, ServiceError] = {
        404: RouteNotFoundError(f"nothing is at {request.url.path}"),
        405: MethodNotAllowedError(f"{request.method} is not possible at {request.url.path}"),
    }
    response = respond(kinds.get(error.status_code, BadRequestError(str(error.detail))))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names the methods of the first route of this path only. Pages are not described.
        described = _methods_at(request.app, request.url.path)
        if described:
            response.headers["Allow"] = ", ".join(described)
    return response


def _methods_at(app: FastAPI, path: str) -> list[str]:
    found = {"GET"} if path == app.openapi_url else set()
    for template, operations in app.openapi()["paths"].items():
        # A colon begins the name of an action: it is no part of an id.
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/:]+", template), path):
            found |= {method.upper() for method in operations}
    return sorted(found)


def _on_invalid(_: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return respond(BadRequestError("the body is not JSON"))
    flaws = [Flaw(field=field_at(one["loc"], error.body), detail=one["msg"]) for one in found[:SHOWN_FLAWS]]
    first = flaws[0]
    return respond(InvalidRequestError(first.detail, field=first.field), flaws)


def _on_database(_: Request, error: Exception) -> ProblemResponse:
    # The error's text holds statements and addresses: it goes to the log only.
    logger.error("the database failed", exc_info=error)
    return respond(DatabaseUnavailableError("the database does not answer or refused the transaction"))


def _on_fault(request: Request, error: Exception) -> ProblemResponse:
    # Starlette raises the error again after this answer, and the server logs it.
    response = respond(GhostedError(f"unexpected {type(error).__name__}"))
    # Made outside of the layer that adds it to all other answers.
    response.headers[REQUEST_ID] = request.scope.get(SCOPE_KEY, "")
    return response
