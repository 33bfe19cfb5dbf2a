"""The errors of the service, beside those of the core (`ghosted_core.errors`).

GhostedError
├── ServiceError                  carries the HTTP status it is answered with
│   ├── InvalidRequestError       422  a field of the request is wrong
│   │   ├── LocalPathRefusedError      a path of this machine in a request
│   │   ├── UnknownAliasError          an alias that the catalog does not hold
│   │   ├── TokensNotAcceptedError     a Hub token, where the operator set no key to encrypt it
│   │   ├── UploadRefusedError         an upload that is not the text it was said to be
│   │   └── UploadNotCompleteError     a job names an upload that was not completed
│   ├── UnauthenticatedError      401
│   ├── ScopeMissingError         403  the key may not do this
│   ├── ForeignFormError          403  a form of the dashboard that was not sent by its own page
│   ├── RouteNotFoundError        404
│   ├── JobNotFoundError          404  no such job, or one of another key
│   ├── UploadNotFoundError       404  no such upload, or one of another key
│   ├── MethodNotAllowedError     405
│   ├── JobFinishedError          409  too late to cancel
│   ├── UploadInUseError          409  a job that waits or runs needs it
│   ├── JobNotFinishedError       409  too early to delete
│   ├── IdempotencyBusyError      409  the first request of this Idempotency-Key still runs
│   ├── IdempotencyReuseError     422  an Idempotency-Key used for two different requests
│   ├── ArtifactNotReadyError     409
│   ├── ArtifactExpiredError      410
│   ├── BodyTooLargeError         413
│   ├── MediaTypeError            415
│   ├── TooManyRequestsError      429  more requests than a key may send in a minute
│   ├── TooManyUploadsError       429  more uploads than a key may keep
│   ├── TooManyStreamsError       429  more event streams than a key may have open
│   ├── TooManyJobsError          429  more jobs than a key may submit in a day, or have waiting
│   ├── BadRequestError           400  not HTTP or JSON as it should be
│   └── UnavailableError          503  a part that the service stands on does not answer
│       ├── DatabaseUnavailableError
│       ├── BrokerUnavailableError
│       └── StorageUnavailableError
│           └── StorageRefusedError
├── WorkerLostError               every attempt lost its worker
├── DeadlineExceededError         the job ran longer than it may
├── LeaseLostError                another attempt owns the job
├── TokenUnreadableError          a Hub token that today's keys do not open
└── TransitionError               a move that the table of states does not hold
"""

from typing import ClassVar

from ghosted_core.errors import GhostedError


class ServiceError(GhostedError):
    """A request that cannot be served."""

    code = "service"
    status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        advice: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message, advice=advice)
        self.field = field
        self.retry_after_seconds = retry_after_seconds


class BadRequestError(ServiceError):
    """The request is not what HTTP or JSON ask for."""

    code = "bad_request"
    status = 400
    advice = "Send a JSON object, encoded in UTF-8."


class UnauthenticatedError(ServiceError):
    """No key, or none that is in use."""

    code = "unauthenticated"
    status = 401
    advice = "Send a valid key in the header 'Authorization: Bearer ...'."


class ScopeMissingError(ServiceError):
    """The key is in use, but not for this."""

    code = "scope_missing"
    status = 403
    advice = "Use a key with the named scope; 'ghosted keys create --scope' makes one."


class ForeignFormError(ServiceError):
    """The form was not sent by a page of this service that you are logged in to now."""

    code = "foreign_form"
    status = 403
    advice = "Open the page again and send the form from there."


class RouteNotFoundError(ServiceError):
    """The service has nothing at this path."""

    code = "route_not_found"
    status = 404
    advice = "The paths are listed in /openapi.json."


class JobNotFoundError(ServiceError):
    """No such job, or it belongs to another key: the answer does not tell which."""

    code = "job_not_found"
    status = 404
    advice = "Check the id and the key; GET /v1/jobs lists the jobs of your key."


class UploadNotFoundError(ServiceError):
    """No such upload, or it belongs to another key: the answer does not tell which."""

    code = "upload_not_found"
    status = 404
    advice = "Check the id and the key; uploads are kept for a limited time, so upload the text again."


class MethodNotAllowedError(ServiceError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = 405
    advice = "The methods of each path are listed in /openapi.json."


class JobFinishedError(ServiceError):
    """The job has ended; nothing is left to cancel."""

    code = "job_finished"
    status = 409
    advice = "Read the job to see how it ended."


class JobNotFinishedError(ServiceError):
    """The job waits or runs; only what has ended can be deleted."""

    code = "job_not_finished"
    status = 409
    advice = "Cancel the job first, and delete it once its state says that it has ended."


class IdempotencyBusyError(ServiceError):
    """Another request with the same Idempotency-Key is being answered at this moment."""

    code = "idempotency_in_progress"
    status = 409
    retryable = True
    advice = "Send the same request again in a second: it is answered as the first one was."


class IdempotencyReuseError(ServiceError):
    """The Idempotency-Key was used before, for another request."""

    code = "idempotency_key_reused"
    status = 422
    advice = "Take a fresh key for each new request, and the same key only to repeat one."


class UploadInUseError(ServiceError):
    """A job that waits or runs needs this upload."""

    code = "upload_in_use"
    status = 409
    advice = "Wait until the job has ended, or cancel it."


class ArtifactNotReadyError(ServiceError):
    """The job has no artifact: it has not ended, or not ended well."""

    code = "artifact_not_ready"
    status = 409
    advice = "Wait until the job's state is 'succeeded'."


class ArtifactExpiredError(ServiceError):
    """The artifact was kept as long as promised and is deleted."""

    code = "artifact_expired"
    status = 410
    advice = "Submit the same spec again: it decides the result."


class BodyTooLargeError(ServiceError):
    """The request's body is longer than the service reads."""

    code = "body_too_large"
    status = 413
    advice = "Send fewer or shorter prompts and labels."


class MediaTypeError(ServiceError):
    """The body is not said to be JSON."""

    code = "unsupported_media_type"
    status = 415
    advice = "Send the header 'Content-Type: application/json'."


class TooManyRequestsError(ServiceError):
    """This key or address sent more requests than it may in a minute."""

    code = "too_many_requests"
    status = 429
    retryable = True
    advice = "Wait as long as the header Retry-After says, then go on more slowly."


class TooManyStreamsError(ServiceError):
    """This key has as many event streams open as it may."""

    code = "too_many_streams"
    status = 429
    retryable = True
    advice = "Close streams that nobody reads, or ask for the job and its events from time to time."


class TooManyJobsError(ServiceError):
    """This key has more jobs waiting, or submitted within a day, than it may."""

    code = "too_many_jobs"
    status = 429
    retryable = True
    advice = "Wait as long as the header Retry-After says, or cancel jobs that wait."


class TooManyUploadsError(ServiceError):
    """This key keeps as many uploads as it may."""

    code = "too_many_uploads"
    status = 429
    retryable = True
    advice = "Delete uploads that no job needs any more, or wait until they expire."


class InvalidRequestError(ServiceError):
    """A field of the request is missing, unknown or out of range."""

    code = "invalid_request"
    status = 422
    advice = "Correct the named field and send the request again."


class LocalPathRefusedError(InvalidRequestError):
    """A request names a path of the server's machine."""

    code = "local_path_refused"
    advice = "Name a Hub repository 'owner/name' or an alias of this service's catalog."


class UnknownAliasError(InvalidRequestError):
    """This service's catalog holds nothing of that name."""

    code = "unknown_alias"
    advice = "Use one of the aliases listed in the message, or ask the operator to add yours."


class TokensNotAcceptedError(InvalidRequestError):
    """This service keeps no Hub tokens: its operator set no key to encrypt them with."""

    code = "tokens_not_accepted"
    advice = "Use a public model, or ask the operator to set GHOSTED_SECRET_KEY."


class UploadRefusedError(InvalidRequestError):
    """The uploaded file is not the text that it was said to be."""

    code = "upload_refused"
    advice = "Correct the file at the named line and upload it again."


class UploadNotCompleteError(InvalidRequestError):
    """The upload was begun, but its end was never told."""

    code = "upload_not_complete"
    advice = "Send the file to the upload's address, then POST to its ':complete'."


class UnavailableError(ServiceError):
    """A part that the service stands on does not answer."""

    code = "unavailable"
    status = 503
    retryable = True
    advice = "Try again in a few seconds; GET /readyz says what is missing."


class DatabaseUnavailableError(UnavailableError):
    """The database does not answer or refuses the transaction."""

    code = "database_unavailable"


class BrokerUnavailableError(UnavailableError):
    """The broker does not answer. Jobs are safe: they wait in the database."""

    code = "broker_unavailable"


class StorageUnavailableError(UnavailableError):
    """The object store does not answer or refuses the request."""

    code = "storage_unavailable"


class StorageRefusedError(StorageUnavailableError):
    """The object store says no to this request, now and later: no such thing, or no right to it."""


class WorkerLostError(GhostedError):
    """Every attempt lost its worker: the machine died, or the process was killed."""

    code = "worker_lost"
    retryable = True
    advice = "Submit again; if it recurs, the model needs more memory than the workers have."


class DeadlineExceededError(GhostedError):
    """The job ran longer than its deadline allows."""

    code = "deadline_exceeded"
    advice = "Submit with a longer 'deadline_seconds', or with less calibration and evaluation text."


class LeaseLostError(GhostedError):
    """The lease of this attempt is over; whatever it still writes must not count."""

    code = "lease_lost"
    advice = "Stop the attempt: the job has ended or another attempt owns it."


class TokenUnreadableError(GhostedError):
    """The Hub token that came with the job cannot be decrypted any more."""

    code = "token_unreadable"
    advice = "Submit again with the token: the operator has changed the keys meanwhile."


class TransitionError(GhostedError):
    """The table of states holds no such move."""

    code = "transition"
