"""One request and its answer: sent again where that helps, problems as typed errors."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ghosted_client.errors import (
    ApiError,
    ClientError,
    Flaw,
    NotAuthenticatedError,
    Problem,
    UnexpectedAnswerError,
    api_error,
)
from ghosted_client.patience import Patience, retry_after, settled
from ghosted_client.wire import Incoming, Outgoing, Wire

FIRST_ERROR_STATUS = 400

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Exchange:
    """Requests to one service."""

    wire: Wire
    patience: Patience = field(default_factory=Patience)

    async def ask(self, kind: type[T], request: Outgoing) -> T:
        """The answer as a value.

        Raises:
            ApiError: the service refused.
            ConnectionFailedError: it does not answer.
            UnexpectedAnswerError: the answer is not of this service.
        """
        answer = await self.send(request)
        return parsed(kind, request, answer)

    async def send(self, request: Outgoing, settled_by: Collection[str] = ()) -> Incoming:
        """The answer, asked for again while the refusal may pass.

        Every request of this client can be repeated: it reads, or carries an Idempotency-Key, or
        finds out by a code of `settled_by` that an earlier try has done the work; the answer is
        then that refusal.

        Raises:
            ApiError: the service refused.
            ConnectionFailedError: it does not answer.
            UnexpectedAnswerError: the answer is not of this service.
        """
        tries = 0
        while True:
            tries += 1
            try:
                answer = await self.wire.send(request)
                if answer.status < FIRST_ERROR_STATUS:
                    return answer
                raise refusal(answer)
            except ClientError as error:
                if settled(error, tries, settled_by):
                    return answer
                wait = self.patience.wait(tries, error)
                if wait is None:
                    raise
            await self.wire.sleep(wait)


def parsed(kind: type[T], request: Outgoing, answer: Incoming) -> T:
    """The answer's body as a value.

    Raises:
        UnexpectedAnswerError: it has another form.
    """
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise UnexpectedAnswerError(f"{request.path} answered in an unknown form") from error


def refusal(answer: Incoming) -> ApiError | UnexpectedAnswerError:
    """The error that an answer of status 400 or more stands for."""
    try:
        document = json.loads(answer.content)
        problem = Problem(
            status=answer.status,
            code=str(document["code"]),
            title=str(document["title"]),
            detail=str(document["detail"]),
            advice=str(document["advice"]),
            field=document.get("field"),
            flaws=tuple(Flaw(one["field"], one["detail"]) for one in document.get("flaws") or ()),
            retry_after_seconds=retry_after(answer.headers, datetime.now(UTC)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return _foreign(answer)
    return api_error(problem)


def _foreign(answer: Incoming) -> ApiError | UnexpectedAnswerError:
    """A refusal that is not the service's own: a proxy's that may pass, or another server's."""
    if answer.status not in PASSING:
        return UnexpectedAnswerError(f"status {answer.status} without a problem document")
    return api_error(
        Problem(
            status=answer.status,
            code="unavailable",
            title="No answer",
            detail=f"something before the service answered {answer.status}",
            advice="Try again in a few seconds.",
            retry_after_seconds=retry_after(answer.headers, datetime.now(UTC)),
        )
    )


PASSING = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


def authorization(key: str | None) -> Mapping[str, Any]:
    """The header that carries the key.

    Raises:
        NotAuthenticatedError: the key holds what no key of a service holds.
    """
    if key is None:
        return {}
    if key.isascii() and key.isprintable():
        return {"Authorization": f"Bearer {key}"}
    # The key itself is not shown: most of it may be right.
    told = "the API key holds a character that no key has"
    advice = "Copy the key again, without line breaks."
    raise NotAuthenticatedError(Problem(HTTPStatus.UNAUTHORIZED, "unauthenticated", "No key", told, advice))
