"""Requests to the service, its problems as typed errors."""

import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from ghosted_client.errors import (
    ApiError,
    ConnectionFailedError,
    NotAuthenticatedError,
    Problem,
    TemporaryError,
    UnexpectedAnswerError,
    api_error,
)

TIMEOUT_SECONDS = 30
# Reading may be tried again; a service that restarts is back within these waits.
WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
FIRST_ERROR_STATUS = 400

T = TypeVar("T", bound=BaseModel)


class Transport:
    """One connection pool to one service, with one key."""

    def __init__(self, url: str, key: str | None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """No connection yet.

        Raises:
            NotAuthenticatedError: the key holds what no key of a service holds.
            ConnectionFailedError: the address is none.
        """
        headers = {"Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {_sendable(key)}"
        try:
            self._http = httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS)
        except httpx2.InvalidURL as error:
            raise ConnectionFailedError(f"'{url}' is not an address") from error
        self._sleep = sleep

    def close(self) -> None:
        """No connection is open afterwards."""
        self._http.close()

    def get(self, path: str, kind: type[T], **params: Any) -> T:
        """The answer to a question, asked again for a while if the service is away.

        Raises:
            ApiError: the service refused.
            ConnectionFailedError: it does not answer.
            UnexpectedAnswerError: the answer is not of this service.
        """
        given = {name: value for name, value in params.items() if value is not None}
        for wait in WAITS_SECONDS:
            try:
                return self._ask("GET", path, kind, params=given)
            except (ConnectionFailedError, TemporaryError):
                self._sleep(wait)
        return self._ask("GET", path, kind, params=given)

    def post(self, path: str, kind: type[T], body: Any = None) -> T:
        """The answer to a request that changes something: sent once.

        Raises:
            ApiError: the service refused.
            ConnectionFailedError: it does not answer.
            UnexpectedAnswerError: the answer is not of this service.
        """
        if body is None:
            return self._ask("POST", path, kind)
        # Escaped to ASCII: text that UTF-8 cannot hold reaches the service, which says what is wrong.
        content = json.dumps(body).encode("ascii")
        return self._ask("POST", path, kind, content=content, headers={"Content-Type": "application/json"})

    def _ask(self, method: str, path: str, kind: type[T], **content: Any) -> T:
        try:
            response = self._http.request(method, path, **content)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            name = type(error).__name__
            raise ConnectionFailedError(f"no answer from {self._http.base_url} ({name})") from error
        if response.status_code >= FIRST_ERROR_STATUS:
            raise _refusal(response)
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise UnexpectedAnswerError(f"{path} answered in an unknown form") from error


def _sendable(key: str) -> str:
    if key.isascii() and key.isprintable():
        return key
    # The key itself is not shown: most of it may be right.
    told = "the API key holds a character that no key has"
    advice = "Copy the key again, without line breaks."
    raise NotAuthenticatedError(Problem(HTTPStatus.UNAUTHORIZED, "unauthenticated", "No key", told, advice))


def _refusal(response: httpx2.Response) -> ApiError | UnexpectedAnswerError:
    try:
        document = response.json()
        problem = Problem(
            status=response.status_code,
            code=str(document["code"]),
            title=str(document["title"]),
            detail=str(document["detail"]),
            advice=str(document["advice"]),
            field=document.get("field"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return UnexpectedAnswerError(f"status {response.status_code} without a problem document")
    return api_error(problem)
