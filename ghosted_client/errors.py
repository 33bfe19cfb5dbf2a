"""What can go wrong between here and the service.

ClientError
├── ApiError                  the service answered with a problem document
│   ├── NotAuthenticatedError     401
│   ├── NotFoundError             404
│   ├── ConflictError             409, 410
│   ├── InvalidError              400, 413, 415, 422
│   └── TemporaryError            429, 500 and above
├── ConnectionFailedError     no answer
├── UnexpectedAnswerError     an answer, but not of this service
├── TransferFailedError       a file of the artifact could not be fetched
├── ChecksumMismatchError     a fetched file is not what the manifest says
└── WaitTimeoutError          the job had not ended in the time given
"""

from dataclasses import dataclass
from http import HTTPStatus

from ghosted_core.errors import GhostedError


@dataclass(frozen=True)
class Problem:
    """A problem document of the service."""

    status: int
    code: str
    title: str
    detail: str
    advice: str
    field: str | None = None


class ClientError(GhostedError):
    """The client could not do what was asked."""

    code = "client"


class ApiError(ClientError):
    """The service refused; `code` and the advice are the service's own."""

    code = "api"

    def __init__(self, problem: Problem) -> None:
        where = f"{problem.field}: " if problem.field else ""
        super().__init__(where + problem.detail, advice=problem.advice)
        self.problem = problem
        # Here the code belongs to the answer, not to the class; the class's own is a fallback.
        vars(self)["code"] = problem.code


class NotAuthenticatedError(ApiError):
    """The key is missing, unknown or revoked."""


class NotFoundError(ApiError):
    """There is no such job, or it is another key's."""


class ConflictError(ApiError):
    """The job is not in a state that allows this."""


class InvalidError(ApiError):
    """The request was not understood; `problem.field` names what is wrong."""


class TemporaryError(ApiError):
    """The service cannot serve at the moment."""

    retryable = True


class ConnectionFailedError(ClientError):
    """The service does not answer."""

    code = "connection_failed"
    advice = "Check the service's address (GHOSTED_URL) and that it runs."
    retryable = True


class UnexpectedAnswerError(ClientError):
    """Something answered that is not this service, or not a version that this client knows."""

    code = "unexpected_answer"
    advice = "Check the service's address (GHOSTED_URL), or update the client."


class TransferFailedError(ClientError):
    """A file of the artifact could not be fetched."""

    code = "transfer_failed"
    advice = "Run the same command again: what has arrived is kept and the rest is fetched."
    retryable = True


class ChecksumMismatchError(ClientError):
    """A fetched file is not what the manifest says; it was deleted."""

    code = "checksum_mismatch"
    advice = "Fetch again; if it recurs, the stored artifact is damaged."
    retryable = True


class WaitTimeoutError(ClientError):
    """The job had not ended in the time given; it goes on."""

    code = "wait_timeout"
    advice = "Watch the job again, or cancel it."
    retryable = True


def api_error(problem: Problem) -> ApiError:
    """The error of the kind that the problem's status calls for."""
    by_status: dict[int, type[ApiError]] = {
        401: NotAuthenticatedError,
        404: NotFoundError,
        409: ConflictError,
        410: ConflictError,
        429: TemporaryError,
    }
    ours = problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    default = TemporaryError if ours else InvalidError
    return by_status.get(problem.status, default)(problem)
