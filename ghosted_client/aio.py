"""The service's operations as coroutines: all logic of both clients is here or below."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from ghosted_client import download, requests, uploading
from ghosted_client.exchange import FIRST_ERROR_STATUS, Exchange, authorization, parsed
from ghosted_client.holdings import (
    KnownDataset,
    KnownDatasetList,
    KnownModel,
    KnownModelList,
    Method,
    MethodList,
    Upload,
    UploadPage,
    Worker,
    WorkerList,
)
from ghosted_client.models import (
    Artifact,
    Event,
    EventPage,
    Job,
    JobPage,
    LogTail,
    Metric,
    MetricList,
    Validation,
)
from ghosted_client.patience import Patience
from ghosted_client.requests import Filters, JobId, Spec
from ghosted_client.watching import OUTAGE_SECONDS, Terms, Watcher
from ghosted_client.wire import Address, WaitingWire, Wire

TIMEOUT_SECONDS = 30.0
PAGE = 100
OnEvent = Callable[[Event], None]
OnJob = Callable[[Job], None]
OnBytes = Callable[[int], None]


def ignore(_: object) -> None:
    """Nothing is done."""


class Core:
    """Every operation over some wire. `AsyncClient` and `Client` are this with a wire each."""

    def __init__(self, wire: Wire, patience: Patience, clock: Callable[[], float]) -> None:
        self._exchange = Exchange(wire, patience)
        self._clock = clock

    async def submit(
        self,
        spec: Spec,
        *,
        labels: Mapping[str, str] | None = None,
        deadline_seconds: int | None = None,
        idempotency_key: str | None = None,
        hub_token: str | None = None,
    ) -> Job:
        """See `Client.submit`."""
        body = requests.submission(spec, labels, deadline_seconds)
        request = requests.submit(body, key=idempotency_key, hub_token=hub_token)
        return await self._exchange.ask(Job, request)

    async def validate(
        self, spec: Spec, *, deadline_seconds: int | None = None, hub_token: str | None = None
    ) -> Validation:
        """See `Client.validate`."""
        body = requests.submission(spec, deadline_seconds=deadline_seconds)
        return await self._exchange.ask(Validation, requests.validate(body, hub_token=hub_token))

    async def retry(
        self,
        job_id: JobId,
        edits: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        hub_token: str | None = None,
    ) -> Job:
        """See `Client.retry`."""
        request = requests.retry(job_id, edits or {}, key=idempotency_key, hub_token=hub_token)
        return await self._exchange.ask(Job, request)

    async def get(self, job_id: JobId) -> Job:
        """See `Client.get`."""
        return await self._exchange.ask(Job, requests.get(job_id))

    async def list(
        self, *, limit: int = 20, after: JobId | None = None, **filters: Unpack[Filters]
    ) -> JobPage:
        """See `Client.list`."""
        return await self._exchange.ask(JobPage, requests.listing(limit=limit, after=after, **filters))

    async def jobs(
        self, *, limit: int | None = None, after: JobId | None = None, **filters: Unpack[Filters]
    ) -> AsyncGenerator[Job, None]:
        """See `Client.jobs`."""
        left = limit
        while left is None or left > 0:
            page = await self.list(limit=PAGE if left is None else min(left, PAGE), after=after, **filters)
            for job in page.items:
                yield job
            left, after = None if left is None else left - len(page.items), page.next_after
            if not page.has_more:
                return

    async def events(
        self, job_id: JobId, *, after: int = 0, follow: bool = False
    ) -> AsyncGenerator[Event, None]:
        """See `Client.events`."""
        if follow:
            async with aclosing(self.watch(job_id, after=after)) as seen:
                async for one in seen:
                    if isinstance(one, Event):
                        yield one
            return
        more = True
        while more:
            page = await self._exchange.ask(EventPage, requests.part(job_id, "events", after=after))
            for event in page.items:
                yield event
            after, more = page.next_after, page.has_more

    async def log(self, job_id: JobId, *, lines: int = 200) -> LogTail:
        """See `Client.log`."""
        return await self._exchange.ask(LogTail, requests.part(job_id, "log", lines=lines))

    async def metrics(self, job_id: JobId) -> tuple[Metric, ...]:
        """See `Client.metrics`."""
        return (await self._exchange.ask(MetricList, requests.part(job_id, "metrics"))).items

    async def artifact(self, job_id: JobId) -> Artifact:
        """See `Client.artifact`."""
        return await self._exchange.ask(Artifact, requests.part(job_id, "artifact"))

    async def cancel(self, job_id: JobId) -> Job:
        """See `Client.cancel`."""
        request = requests.cancel(job_id)
        answer = await self._exchange.send(request, settled_by={"job_finished"})
        done_before = answer.status >= FIRST_ERROR_STATUS
        return await self.get(job_id) if done_before else parsed(Job, request, answer)

    async def delete(self, job_id: JobId) -> None:
        """See `Client.delete`."""
        await self._exchange.send(requests.delete(job_id), settled_by={"job_not_found"})

    async def strategies(self) -> tuple[Method, ...]:
        """See `Client.strategies`."""
        return (await self._exchange.ask(MethodList, requests.everything("strategies"))).items

    async def recoveries(self) -> tuple[Method, ...]:
        """See `Client.recoveries`."""
        return (await self._exchange.ask(MethodList, requests.everything("recoveries"))).items

    async def models(self) -> tuple[KnownModel, ...]:
        """See `Client.models`."""
        return (await self._exchange.ask(KnownModelList, requests.everything("models"))).items

    async def datasets(self) -> tuple[KnownDataset, ...]:
        """See `Client.datasets`."""
        return (await self._exchange.ask(KnownDatasetList, requests.everything("datasets"))).items

    async def workers(self) -> tuple[Worker, ...]:
        """See `Client.workers`."""
        return (await self._exchange.ask(WorkerList, requests.everything("workers"))).items

    async def watch(
        self,
        job_id: JobId,
        *,
        after: int = 0,
        poll_seconds: float | None = None,
        timeout_seconds: float | None = None,
        outage_seconds: float = OUTAGE_SECONDS,
    ) -> AsyncGenerator[Event | Job, None]:
        """See `Client.watch`."""
        terms = Terms(after, poll_seconds, timeout_seconds, outage_seconds)
        async with aclosing(Watcher(self._exchange, job_id, terms, self._clock).seen()) as seen:
            async for one in seen:
                yield one

    async def wait(
        self,
        job_id: JobId,
        *,
        on_event: OnEvent = ignore,
        on_job: OnJob = ignore,
        poll_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> Job:
        """See `Client.wait`."""
        watched = self.watch(job_id, poll_seconds=poll_seconds, timeout_seconds=timeout_seconds)
        last: Job | None = None
        async with aclosing(watched) as seen:
            async for one in seen:
                if isinstance(one, Job):
                    last = one
                    on_job(one)
                else:
                    on_event(one)
        # Only a watcher that begins after the job's last event sees no job.
        return last or await self.get(job_id)

    async def pull(
        self, job_id: JobId, folder: Path, *, on_bytes: OnBytes = ignore, workers: int = download.WORKERS
    ) -> Artifact:
        """See `Client.pull`."""
        return await download.pull(
            self._exchange.wire, lambda: self.artifact(job_id), folder, on_bytes, workers
        )

    async def upload(self, file: Path, *, on_bytes: OnBytes = ignore) -> Upload:
        """See `Client.upload`."""
        return await uploading.upload(self._exchange, file, on_bytes)

    async def uploads(self, *, limit: int | None = None) -> AsyncGenerator[Upload, None]:
        """See `Client.uploads`."""
        left, after, more = limit, None, True
        while more and (left is None or left > 0):
            size = PAGE if left is None else min(left, PAGE)
            page = await self._exchange.ask(UploadPage, requests.uploads(size, after))
            for upload in page.items:
                yield upload
            left = None if left is None else left - len(page.items)
            after, more = page.next_after, page.has_more

    async def delete_upload(self, upload_id: JobId) -> None:
        """See `Client.delete_upload`."""
        await self._exchange.send(requests.delete_upload(upload_id), settled_by={"upload_not_found"})

    async def close(self) -> None:
        """No connection is open afterwards."""
        await self._exchange.wire.close()


class AsyncClient(Core):
    """A connection to one service with one key, for asyncio; close it, or use it in `async with`.

    Each method is that of `Client`, to be awaited, or to be iterated with `async for`.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """No connection yet. See `Client`."""
        address = Address(url, {"Accept": "application/json", **authorization(key)}, timeout_seconds)
        super().__init__(WaitingWire(address), patience or Patience(), clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
