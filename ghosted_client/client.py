"""The service's operations as methods."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from ghosted_client import download
from ghosted_client.errors import WaitTimeoutError
from ghosted_client.models import Artifact, Event, EventPage, Job, JobPage, Metric, MetricList, State
from ghosted_client.transport import Transport
from ghosted_core.spec import JobSpec

POLL_SECONDS = 1.0


class Client:
    """A connection to one service with one key; close it, or use it in a `with` statement."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = Transport(url, key, sleep=sleep)
        self._sleep = sleep
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No connection is open afterwards."""
        self._transport.close()

    def submit(
        self,
        spec: JobSpec | Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        deadline_seconds: int | None = None,
    ) -> Job:
        """A new job, queued.

        Raises:
            InvalidError: the spec is not one that this service accepts.
        """
        body = spec.model_dump(mode="json") if isinstance(spec, JobSpec) else dict(spec)
        if labels:
            body["labels"] = dict(labels)
        if deadline_seconds is not None:
            body["deadline_seconds"] = deadline_seconds
        return self._transport.post("/v1/jobs", Job, body)

    def get(self, job_id: UUID | str) -> Job:
        """The job as it stands.

        Raises:
            NotFoundError: there is none of this id for this key.
        """
        return self._transport.get(_path(job_id), Job)

    def list(
        self, *, limit: int = 20, after: UUID | str | None = None, state: State | None = None
    ) -> JobPage:
        """At most `limit` jobs, newest first."""
        return self._transport.get("/v1/jobs", JobPage, limit=limit, after=after and str(after), state=state)

    def events(self, job_id: UUID | str, *, after: int = 0, limit: int = 100) -> EventPage:
        """At most `limit` events numbered above `after`."""
        return self._transport.get(f"{_path(job_id)}/events", EventPage, after=after, limit=limit)

    def metrics(self, job_id: UUID | str) -> tuple[Metric, ...]:
        """The figures of the latest attempt."""
        return self._transport.get(f"{_path(job_id)}/metrics", MetricList).items

    def cancel(self, job_id: UUID | str) -> Job:
        """The job, cancelled or told to stop.

        Raises:
            ConflictError: it has ended.
        """
        return self._transport.post(f"{_path(job_id)}/cancel", Job)

    def artifact(self, job_id: UUID | str) -> Artifact:
        """The result's files with fresh links.

        Raises:
            ConflictError: there is no result yet, or it is deleted.
        """
        return self._transport.get(f"{_path(job_id)}/artifact", Artifact)

    def watch(
        self,
        job_id: UUID | str,
        *,
        after: int = 0,
        poll_seconds: float = POLL_SECONDS,
        timeout_seconds: float | None = None,
    ) -> Iterator[Event | Job]:
        """Events as they come and, after each look, the job; ends with the job once it is done.

        Raises:
            WaitTimeoutError: it had not ended after `timeout_seconds`.
        """
        started = self._clock()
        while True:
            # The job first: an event that comes in between is then seen at this look or the next.
            job = self.get(job_id)
            for event in self._events_after(job_id, after):
                after = event.number
                yield event
            yield job
            if job.done and after >= job.event_count:
                return
            if timeout_seconds is not None and self._clock() - started > timeout_seconds:
                raise WaitTimeoutError(f"job {job_id} is {job.state} after {timeout_seconds:g} s")
            self._sleep(poll_seconds)

    def _events_after(self, job_id: UUID | str, after: int) -> Iterator[Event]:
        more = True
        while more:
            page = self.events(job_id, after=after)
            yield from page.items
            after, more = page.next_after, page.has_more

    def wait(
        self,
        job_id: UUID | str,
        *,
        after: int = 0,
        poll_seconds: float = POLL_SECONDS,
        timeout_seconds: float | None = None,
    ) -> Iterator[Event]:
        """Events as they come, until the job has ended.

        Raises:
            WaitTimeoutError: it had not ended after `timeout_seconds`.
        """
        seen = self.watch(job_id, after=after, poll_seconds=poll_seconds, timeout_seconds=timeout_seconds)
        return (one for one in seen if isinstance(one, Event))

    def pull(
        self,
        job_id: UUID | str,
        folder: Path,
        *,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Artifact:
        """The artifact lies in `folder`, every file checked; `on_bytes` hears of each piece that arrived.

        Files come in parallel into a hidden sibling of `folder`, which takes its name at the end.
        After an interruption the same call goes on where it stopped.

        Raises:
            OutputExistsError: `folder` exists and is not empty, or is the current folder.
            OutputUnusableError: `folder` cannot be written.
            DiskFullError: the disk has no room for it.
            TransferFailedError: a file could not be fetched.
            ChecksumMismatchError: a file is not what the manifest says.
            ConflictError: there is no result yet, or it is deleted.
        """
        return download.pull(lambda: self.artifact(job_id), folder, on_bytes)


def _path(job_id: UUID | str) -> str:
    # Only ids become part of a path.
    return f"/v1/jobs/{UUID(str(job_id))}"
