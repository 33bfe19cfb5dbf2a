"""The service's operations as plain methods."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from ghosted_client import download
from ghosted_client.aio import TIMEOUT_SECONDS, Core, OnBytes, OnEvent, OnJob, ignore
from ghosted_client.driving import iterate_now, run_now
from ghosted_client.exchange import authorization
from ghosted_client.holdings import KnownDataset, KnownModel, Method, Upload, Worker
from ghosted_client.models import Artifact, Event, Job, JobPage, LogTail, Metric, Validation
from ghosted_client.patience import Patience
from ghosted_client.requests import Filters, JobId, Spec
from ghosted_client.watching import OUTAGE_SECONDS
from ghosted_client.wire import Address, BlockingWire


class Client:
    """A connection to one service with one key; close it, or use it in a `with` statement.

    Requests are sent again for a while when the service is away, refuses for the moment (429, 503;
    never before its `Retry-After`) or the answer is lost. None of them does its work twice.

    Every method raises ApiError (by the problem's code and status) where the service refuses,
    ConnectionFailedError where it does not answer, UnexpectedAnswerError where something else does.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """No connection yet. An answer may take `timeout_seconds` to begin, and between its pieces.

        Raises:
            NotAuthenticatedError: the key holds what no key of a service holds.
            ConnectionFailedError: the address is none.
        """
        address = Address(url, {"Accept": "application/json", **authorization(key)}, timeout_seconds)
        self._core = Core(BlockingWire(address, sleep), patience or Patience(), clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No connection is open afterwards."""
        run_now(self._core.close())

    def submit(
        self,
        spec: Spec,
        *,
        labels: Mapping[str, str] | None = None,
        deadline_seconds: int | None = None,
        idempotency_key: str | None = None,
        hub_token: str | None = None,
    ) -> Job:
        """A new job, queued: one, however often the request had to be sent.

        With an `idempotency_key` of your own, one for all calls with that key within 24 hours.
        The Hub token is used to fetch the model, and kept until the job has ended.

        Raises:
            InvalidError: the spec is not one that this service accepts.
            KeyReusedError: another request was sent under this `idempotency_key`.
        """
        beside = {"idempotency_key": idempotency_key, "hub_token": hub_token}
        return run_now(self._core.submit(spec, labels=labels, deadline_seconds=deadline_seconds, **beside))

    def validate(
        self, spec: Spec, *, deadline_seconds: int | None = None, hub_token: str | None = None
    ) -> Validation:
        """What submitting `spec` would do and need; nothing is submitted, and the token not kept.

        Raises:
            InvalidError: submitting it would be refused.
        """
        return run_now(self._core.validate(spec, deadline_seconds=deadline_seconds, hub_token=hub_token))

    def retry(
        self,
        job_id: JobId,
        edits: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        hub_token: str | None = None,
    ) -> Job:
        """A clone of the job, queued, with `edits`: the parts of a submission that change."""
        return run_now(self._core.retry(job_id, edits, idempotency_key=idempotency_key, hub_token=hub_token))

    def get(self, job_id: JobId) -> Job:
        """The job as it stands.

        Raises:
            NotFoundError: there is none of this id for this key.
        """
        return run_now(self._core.get(job_id))

    def list(self, *, limit: int = 20, after: JobId | None = None, **filters: Unpack[Filters]) -> JobPage:
        """A page: at most `limit` jobs (100 or fewer), newest first, that fit all filters."""
        return run_now(self._core.list(limit=limit, after=after, **filters))

    def jobs(
        self, *, limit: int | None = None, after: JobId | None = None, **filters: Unpack[Filters]
    ) -> Iterator[Job]:
        """All jobs that fit all filters, or the first `limit`, newest first, page after page."""
        return iterate_now(self._core.jobs(limit=limit, after=after, **filters))

    def events(self, job_id: JobId, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """The events numbered above `after` so far; with `follow`, also those to come, until the job ends."""
        return iterate_now(self._core.events(job_id, after=after, follow=follow))

    def log(self, job_id: JobId, *, lines: int = 200) -> LogTail:
        """The last lines of the job's log, at most 1000."""
        return run_now(self._core.log(job_id, lines=lines))

    def metrics(self, job_id: JobId) -> tuple[Metric, ...]:
        """The figures of the latest attempt."""
        return run_now(self._core.metrics(job_id))

    def artifact(self, job_id: JobId) -> Artifact:
        """The result's files with fresh links.

        Raises:
            ArtifactNotReadyError: the job has not ended, or not well.
            ArtifactExpiredError: it is deleted.
        """
        return run_now(self._core.artifact(job_id))

    def cancel(self, job_id: JobId) -> Job:
        """The job, cancelled or told to stop.

        Raises:
            JobFinishedError: it has ended.
        """
        return run_now(self._core.cancel(job_id))

    def delete(self, job_id: JobId) -> None:
        """Nothing is left of the job, its events, figures and files.

        Raises:
            JobNotFinishedError: it waits or runs.
        """
        run_now(self._core.delete(job_id))

    def strategies(self) -> tuple[Method, ...]:
        """How the layers to remove can be chosen."""
        return run_now(self._core.strategies())

    def recoveries(self) -> tuple[Method, ...]:
        """How the cut can be repaired."""
        return run_now(self._core.recoveries())

    def models(self) -> tuple[KnownModel, ...]:
        """The models that this service knows by an alias; every other one is named as on the Hub."""
        return run_now(self._core.models())

    def datasets(self) -> tuple[KnownDataset, ...]:
        """The texts that this service knows by an alias; every other one is uploaded."""
        return run_now(self._core.datasets())

    def workers(self) -> tuple[Worker, ...]:
        """The workers: what each has and does, and when it was last seen.

        Raises:
            ForbiddenError: the key has not the scope `admin`.
        """
        return run_now(self._core.workers())

    def watch(
        self,
        job_id: JobId,
        *,
        after: int = 0,
        poll_seconds: float | None = None,
        timeout_seconds: float | None = None,
        outage_seconds: float = OUTAGE_SECONDS,
    ) -> Iterator[Event | Job]:
        """Events as they come, and the job whenever it changed; ends with the job once it is done.

        Over the event stream where that works, else, or with `poll_seconds`, by asking so often.
        The service may be away for `outage_seconds` meanwhile: no event is lost, none comes twice.

        Raises:
            WaitTimeoutError: it had not ended after `timeout_seconds`.
        """
        return iterate_now(
            self._core.watch(
                job_id,
                after=after,
                poll_seconds=poll_seconds,
                timeout_seconds=timeout_seconds,
                outage_seconds=outage_seconds,
            )
        )

    def wait(
        self,
        job_id: JobId,
        *,
        on_event: OnEvent = ignore,
        on_job: OnJob = ignore,
        poll_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> Job:
        """The job once it has ended, well or not; until then the callbacks hear what `watch` yields.

        Raises:
            WaitTimeoutError: it had not ended after `timeout_seconds`; it goes on.
        """
        return run_now(
            self._core.wait(
                job_id,
                on_event=on_event,
                on_job=on_job,
                poll_seconds=poll_seconds,
                timeout_seconds=timeout_seconds,
            )
        )

    def pull(
        self, job_id: JobId, folder: Path, *, on_bytes: OnBytes = ignore, workers: int = download.WORKERS
    ) -> Artifact:
        """The artifact lies in `folder`, every file checked; `on_bytes` hears of each piece that arrived.

        `workers` files at a time come into a hidden sibling of `folder`, which takes its name at the
        end. After an interruption the same call goes on where it stopped.

        Raises:
            OutputExistsError: `folder` exists and is not empty, or is the current folder.
            OutputUnusableError: `folder` cannot be written.
            DiskFullError: the disk has no room for it.
            TransferFailedError: a file could not be fetched.
            ChecksumMismatchError: a file is not what the manifest says.
            ArtifactNotReadyError: the job has not ended, or not well.
            ArtifactExpiredError: the artifact is deleted.
        """
        return run_now(self._core.pull(job_id, folder, on_bytes=on_bytes, workers=workers))

    def upload(self, file: Path, *, on_bytes: OnBytes = ignore) -> Upload:
        """The text of a .txt or .jsonl file is at the service; its `dataset` stands in specs.

        Raises:
            DataError: the file's name tells another format.
            DataNotFoundError: it cannot be read.
            InvalidError: it is too long, or not text.
            TransferFailedError: it did not arrive.
        """
        return run_now(self._core.upload(file, on_bytes=on_bytes))

    def uploads(self, *, limit: int | None = None) -> Iterator[Upload]:
        """All uploads of this key that are still kept, or the newest `limit`, newest first."""
        return iterate_now(self._core.uploads(limit=limit))

    def delete_upload(self, upload_id: JobId) -> None:
        """The uploaded text is gone.

        Raises:
            ConflictError: a job that waits or runs names it.
        """
        run_now(self._core.delete_upload(upload_id))
