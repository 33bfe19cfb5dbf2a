"""What can go wrong between here and the service.

ClientError
├── ApiError                  the service answered with a problem document
│   ├── NotAuthenticatedError     401
│   ├── ForbiddenError            403
│   ├── NotFoundError             404
│   ├── ConflictError             409, 410
│   │   ├── ArtifactNotReadyError     artifact_not_ready
│   │   ├── ArtifactExpiredError      artifact_expired
│   │   ├── JobFinishedError          job_finished
│   │   └── JobNotFinishedError       job_not_finished
│   ├── InvalidError              400, 413, 415, 422
│   │   └── KeyReusedError            idempotency_key_reused
│   └── TemporaryError            429, 500 and above
│       └── TooManyError              429
├── ConnectionFailedError     no answer
├── UnexpectedAnswerError     an answer, but not of this service
├── TransferFailedError       a file could not be fetched or sent
├── ChecksumMismatchError     a fetched file is not what the manifest says
└── WaitTimeoutError          the job had not ended in the time given
"""

from dataclasses import dataclass
from http import HTTPStatus

from ghosted_core.errors import GhostedError


@dataclass(frozen=True)
class Flaw:
    """One wrong field of a request."""

    field: str
    detail: str


@dataclass(frozen=True)
class Problem:
    """A problem document of the service; `retry_after_seconds` is its `Retry-After`."""

    status: int
    code: str
    title: str
    detail: str
    advice: str
    field: str | None = None
    flaws: tuple[Flaw, ...] = ()
    retry_after_seconds: float | None = None


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


class ForbiddenError(ApiError):
    """The key is good, but not for this."""


class NotFoundError(ApiError):
    """There is no such job, or it is another key's."""


class ConflictError(ApiError):
    """The job is not in a state that allows this."""


class ArtifactNotReadyError(ConflictError):
    """The job has not ended, or not ended well."""


class ArtifactExpiredError(ConflictError):
    """The artifact was kept as long as promised and is deleted."""


class JobFinishedError(ConflictError):
    """The job has ended; nothing is left to cancel."""


class JobNotFinishedError(ConflictError):
    """The job waits or runs; only what has ended can be deleted."""


class InvalidError(ApiError):
    """The request was not understood; `problem.field` and `problem.flaws` name what is wrong."""


class KeyReusedError(InvalidError):
    """The Idempotency-Key was used before, for another request."""


class TemporaryError(ApiError):
    """The service cannot serve at the moment; `problem.retry_after_seconds` says when to ask again."""

    retryable = True


class TooManyError(TemporaryError):
    """This key has asked for as much as it may for now."""


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


BY_CODE: dict[str, type[ApiError]] = {
    "artifact_expired": ArtifactExpiredError,
    "artifact_not_ready": ArtifactNotReadyError,
    "idempotency_key_reused": KeyReusedError,
    "job_finished": JobFinishedError,
    "job_not_finished": JobNotFinishedError,
}
BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAuthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ConflictError,
    429: TooManyError,
}


def api_error(problem: Problem) -> ApiError:
    """The error of the kind that the problem's code calls for, or else its status."""
    ours = problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    default = TemporaryError if ours else InvalidError
    kind = BY_CODE.get(problem.code) or BY_STATUS.get(problem.status, default)
    return kind(problem)
