"""What is sent for each operation: values only, no input or output."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict
from uuid import UUID, uuid4

from ghosted_client.models import State
from ghosted_client.wire import Outgoing
from ghosted_core.spec import JobSpec

JOBS = "/v1/jobs"
UPLOADS = "/v1/uploads"
KEY_HEADER = "Idempotency-Key"
TOKEN_HEADER = "X-Hub-Token"  # noqa: S105  The name of a header.
# The service reads the whole file before it answers.
COMPLETE_SECONDS = 600.0
# The service is silent for at most 15 s, then sends a comment.
STREAM_SECONDS = 45.0
JSON = {"Content-Type": "application/json"}

JobId = UUID | str
Spec = JobSpec | Mapping[str, Any]


class Filters(TypedDict, total=False):
    """Which jobs are listed: those that fit all of these; None, as what is left out, filters nothing."""

    state: State | None
    model: str | None
    labels: Mapping[str, str] | None
    created_from: datetime | None
    created_before: datetime | None


def submission(
    spec: Spec, labels: Mapping[str, str] | None = None, deadline_seconds: int | None = None
) -> dict[str, Any]:
    """The body of a submission."""
    body = spec.model_dump(mode="json") if isinstance(spec, JobSpec) else dict(spec)
    return body | given(labels=dict(labels) if labels else None, deadline_seconds=deadline_seconds)


def given(**values: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def submit(body: Mapping[str, Any], *, key: str | None, hub_token: str | None) -> Outgoing:
    """A job is queued once, however often this is sent."""
    return _post(JOBS, body, once(key, hub_token))


def validate(body: Mapping[str, Any], *, hub_token: str | None) -> Outgoing:
    """What a submission would do."""
    return _post(f"{JOBS}:validate", body, given(**{TOKEN_HEADER: hub_token}))


def retry(job_id: JobId, edits: Mapping[str, Any], *, key: str | None, hub_token: str | None) -> Outgoing:
    """A clone is queued once, however often this is sent."""
    return _post(f"{job_path(job_id)}/retry", edits, once(key, hub_token))


def once(key: str | None, hub_token: str | None) -> dict[str, str]:
    """The headers of a request that makes one job; without a key of the caller's, one of our own."""
    return given(**{KEY_HEADER: key or uuid4().hex, TOKEN_HEADER: hub_token})


def get(job_id: JobId, etag: str | None = None) -> Outgoing:
    """The job, or 304 while `etag` still holds."""
    return Outgoing("GET", job_path(job_id), headers=given(**{"If-None-Match": etag}))


def listing(
    *,
    limit: int,
    after: JobId | None = None,
    state: State | None = None,
    model: str | None = None,
    labels: Mapping[str, str] | None = None,
    created_from: datetime | None = None,
    created_before: datetime | None = None,
) -> Outgoing:
    """A page of jobs."""
    label = [f"{name}={text}" for name, text in (labels or {}).items()] or None
    params = given(
        limit=limit,
        after=after and str(after),
        state=state,
        model=model,
        label=label,
        created_from=_stamp(created_from),
        created_before=_stamp(created_before),
    )
    return Outgoing("GET", JOBS, params)


def _stamp(moment: datetime | None) -> str | None:
    # Without a zone it is one of this machine's clock.
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def part(job_id: JobId, name: str, **params: Any) -> Outgoing:
    """What belongs to a job: `events`, `metrics`, `log`, `artifact`."""
    return Outgoing("GET", f"{job_path(job_id)}/{name}", given(**params))


def stream(job_id: JobId, after: int, seconds: float = STREAM_SECONDS) -> Outgoing:
    """What happens to a job after event `after`, as it happens."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return Outgoing("GET", f"{job_path(job_id)}/events/stream", headers=headers, seconds=seconds)


def cancel(job_id: JobId) -> Outgoing:
    """The job is to end."""
    return Outgoing("POST", f"{job_path(job_id)}/cancel")


def delete(job_id: JobId) -> Outgoing:
    """The job is to be gone."""
    return Outgoing("DELETE", job_path(job_id))


def everything(name: str) -> Outgoing:
    """All `strategies`, `recoveries`, `models`, `datasets` or `workers`."""
    return Outgoing("GET", f"/v1/{name}")


def uploads(limit: int, after: JobId | None) -> Outgoing:
    """A page of uploads."""
    return Outgoing("GET", UPLOADS, given(limit=limit, after=after and str(after)))


def begin_upload(text_format: str, size_bytes: int) -> Outgoing:
    """Room for a text."""
    return _post(UPLOADS, {"format": text_format, "size_bytes": size_bytes}, {})


def complete_upload(upload_id: UUID) -> Outgoing:
    """The text has arrived."""
    return Outgoing("POST", f"{UPLOADS}/{upload_id}:complete", seconds=COMPLETE_SECONDS)


def delete_upload(upload_id: JobId) -> Outgoing:
    """The text is to be gone."""
    return Outgoing("DELETE", f"{UPLOADS}/{UUID(str(upload_id))}")


def job_path(job_id: JobId) -> str:
    """Where a job is; only ids become part of a path."""
    return f"{JOBS}/{UUID(str(job_id))}"


def _post(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Outgoing:
    # Escaped to ASCII: text that UTF-8 cannot hold reaches the service, which says what is wrong.
    content = json.dumps(body).encode("ascii")
    return Outgoing("POST", path, headers={**JSON, **headers}, content=content)
