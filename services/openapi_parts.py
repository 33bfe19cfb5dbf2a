"""What the description says beside FastAPI's own: which problems, headers and links an answer has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ghosted_core.errors import GhostedError, InvalidSpecError, ModelNotFoundError
from services import errors
from services.problems import problem_of

OPENED_TAGS = [
    {"name": "jobs", "description": "Ask for a compressed model; follow, change and delete what was asked."},
    {"name": "artifacts", "description": "Fetch what a job made."},
    {"name": "uploads", "description": "Bring a text of your own, for jobs to calibrate or evaluate on."},
    {
        "name": "methods",
        "description": "What there is to choose from: aliases, strategies, repairs.",
    },
    {"name": "health", "description": "For probes; no key is needed."},
]


def _text(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string", **schema}}


HEADERS: Mapping[str, Any] = {
    "Location": _text("The address of what was made."),
    "Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}},
    "ETag": _text("Send it as `If-None-Match` to be answered 304 while nothing changed."),
    "Idempotent-Replayed": _text(
        "`true` if this is the answer to an earlier request of the same Idempotency-Key.", enum=["true"]
    ),
    "WWW-Authenticate": _text("How to authenticate: `Bearer`."),
    "X-Accel-Buffering": _text("`no`: proxies pass each event on at once."),
}
ACCEPTED_HEADERS = ("Location", "Retry-After", "Idempotent-Replayed")
SUCCESS_HEADERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "submit_job": {"202": ACCEPTED_HEADERS},
    "retry_job": {"202": ACCEPTED_HEADERS},
    "begin_upload": {"201": ("Location",)},
    "get_job": {"200": ("ETag",), "304": ("ETag",)},
    "stream_events": {"200": ("X-Accel-Buffering",)},
}
SUCCESSES: Mapping[str, Mapping[str, Any]] = {
    "get_job": {"304": {"description": "The job is as the ETag has it"}},
    "stream_events": {
        "200": {
            "description": "Messages until the job ends",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'event: claimed\ndata: {"number": 2, "type": "claimed", ...}\nid: 2\n\n',
                }
            },
        },
        "204": {"description": "The job has ended, and you have seen all of it"},
    },
}
_OF_THE_JOB = {"job_id": "$response.body#/id"}
LINKS: Mapping[str, Any] = {
    name: {"operationId": name, "parameters": _OF_THE_JOB}
    for name in (
        "get_job",
        "list_events",
        "tail_log",
        "list_metrics",
        "retry_job",
        "cancel_job",
        "delete_job",
        "get_artifact",
    )
}
# Operations whose answer is a job.
LINKED: Mapping[str, tuple[str, ...]] = {
    "submit_job": ("202",),
    "retry_job": ("202",),
    "cancel_job": ("202",),
}


@dataclass(frozen=True)
class Documented:
    """A status that an operation may answer with, its problems as examples, its headers."""

    description: str
    kinds: tuple[GhostedError, ...] = ()
    headers: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> dict[str, Any]:
        """An example document of each kind, by its code."""
        return {kind.code: problem_of(kind).model_dump(mode="json", exclude_none=True) for kind in self.kinds}


_ID = "018f3e2a-7d4c-7000-8000-000000000000"
ANY_OPERATION = {500: Documented("A fault of the service", (GhostedError("unexpected KeyError"),))}
UNAVAILABLE = {
    503: Documented(
        "A part that the service stands on does not answer",
        (
            errors.DatabaseUnavailableError("the database does not answer"),
            errors.StorageUnavailableError("the object store does not answer"),
        ),
        ("Retry-After",),
    )
}
WITH_KEY = {
    401: Documented(
        "No valid key",
        (errors.UnauthenticatedError("this request carries no API key"),),
        ("WWW-Authenticate",),
    ),
    403: Documented(
        "The key may not do this", (errors.ScopeMissingError("this key has not the scope 'submit'"),)
    ),
    429: Documented("More requests or jobs than this key may have now", (), ("Retry-After",)),
}
# They need no key, and are counted by the address that asks.
OPEN = frozenset({"/v1/strategies", "/v1/recoveries", "/readyz"})
WITH_JOB = {404: Documented("No such job, or it is another's", (errors.JobNotFoundError(f"no job {_ID}"),))}
WITH_UPLOAD = {
    404: Documented("No such upload, or it is another's", (errors.UploadNotFoundError(f"no upload {_ID}"),))
}
WITH_INPUT = {
    422: Documented(
        "A field or parameter of the request is wrong",
        (errors.InvalidRequestError("Input should be greater than 0", field="layers"),),
    )
}
WITH_SPEC = {
    422: Documented(
        "A field of the request is wrong, or what it asks for cannot be had",
        (
            errors.InvalidRequestError("Input should be greater than 0", field="layers"),
            errors.UnknownAliasError("No model is called 'small' here.", field="model"),
            errors.IdempotencyReuseError("this Idempotency-Key was sent before", field="Idempotency-Key"),
            InvalidSpecError("'layers' is 30, but the model has only 30 layers.", field="layers"),
        ),
    )
}
WITH_BODY = {
    400: Documented("Not JSON", (errors.BadRequestError("the body is not JSON"),)),
    413: Documented("The body is too long", (errors.BodyTooLargeError("more than 262144 bytes"),)),
    415: Documented(
        "The body is not said to be JSON", (errors.MediaTypeError("the body is said to be 'text/plain'"),)
    ),
}
_BUSY = {
    409: Documented("A request with this key is being answered", (errors.IdempotencyBusyError("not yet"),))
}
OF_OPERATION: Mapping[str, Mapping[int, Documented]] = {
    "submit_job": {**WITH_SPEC, **_BUSY, **WITH_UPLOAD},
    "retry_job": {**WITH_SPEC, **_BUSY},
    "validate_job": {
        **WITH_UPLOAD,
        422: Documented(
            WITH_SPEC[422].description,
            (
                *WITH_SPEC[422].kinds,
                ModelNotFoundError("The Hub has no owner/name, or shows it only to some."),
            ),
        ),
    },
    "cancel_job": {409: Documented("The job has ended", (errors.JobFinishedError("it is failed"),))},
    "delete_upload": {
        409: Documented(
            "A job that waits or runs names the upload", (errors.UploadInUseError("a job names it"),)
        )
    },
    "stream_events": {
        429: Documented(
            "More requests than this key may send now, or more streams than it may have open",
            (errors.TooManyStreamsError("100 event streams of this key are open already"),),
            ("Retry-After",),
        )
    },
    "delete_job": {409: Documented("The job has not ended", (errors.JobNotFinishedError("it is running"),))},
    "get_artifact": {
        409: Documented("The job has no artifact yet", (errors.ArtifactNotReadyError("it is running"),)),
        410: Documented(
            "The artifact is deleted", (errors.ArtifactExpiredError("it was kept until 2026-01-01"),)
        ),
    },
}


def problems_of(path: str, operation: Mapping[str, Any]) -> dict[int, Documented]:
    """What the operation may answer with beside its success."""
    found = dict(ANY_OPERATION)
    # Readiness says which part is missing, in its own form.
    found |= UNAVAILABLE if path.startswith("/v1/") or path == "/metrics" else {}
    found |= WITH_KEY if "security" in operation else {}
    found |= {429: WITH_KEY[429]} if path in OPEN else {}
    found |= WITH_JOB if "{job_id}" in path else {}
    found |= WITH_UPLOAD if "{upload_id}" in path else {}
    found |= WITH_INPUT if path.startswith("/v1/") else {}
    found |= WITH_BODY if "requestBody" in operation else {}
    found |= OF_OPERATION.get(operation["operationId"], {})
    return dict(sorted(found.items()))
