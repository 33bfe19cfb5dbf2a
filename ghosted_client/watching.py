"""Follows a job to its end: over the event stream where that works, else by looking again and again."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ghosted_client import requests
from ghosted_client.errors import (
    ApiError,
    ClientError,
    ConnectionFailedError,
    NotAuthenticatedError,
    TemporaryError,
    TooManyError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from ghosted_client.exchange import FIRST_ERROR_STATUS, Exchange, parsed, refusal
from ghosted_client.models import Event, EventPage, Job
from ghosted_client.sse import Decoder, Message
from ghosted_client.wire import Flow, Incoming

POLL_SECONDS = 1.0
# How long the service may be away before the watcher gives up.
OUTAGE_SECONDS = 300.0
NO_CONTENT, NOT_MODIFIED = 204, 304
STREAM_TYPE = "text/event-stream"
TOO_MANY_STREAMS = "too_many_streams"
JOB_MESSAGE = "job"

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Terms:
    """How a job is watched; `poll_seconds` None: over the event stream, as long as that works."""

    after: int = 0
    poll_seconds: float | None = None
    timeout_seconds: float | None = None
    outage_seconds: float = OUTAGE_SECONDS


class Watcher:
    """One way through the events of one job; no event twice, none left out."""

    def __init__(
        self, exchange: Exchange, job_id: requests.JobId, terms: Terms, clock: Callable[[], float]
    ) -> None:
        self._exchange = exchange
        self._job_id = job_id
        self._terms = terms
        self._clock = clock
        self._began = clock()
        self._after = terms.after
        self._job: Job | None = None
        self._etag: str | None = None
        self._streams = terms.poll_seconds is None
        self._away_since: float | None = None

    async def seen(self) -> AsyncGenerator[Event | Job, None]:
        """Events as they come, and the job whenever it changed; ends with the job once it is done.

        Raises:
            ApiError: there is no such job, or the key is not good.
            ConnectionFailedError: the service did not answer for `outage_seconds`.
            WaitTimeoutError: the job had not ended after `timeout_seconds`.
        """
        # The first look is not patient: a wrong address or id is told at once.
        async with aclosing(self._look()) as look:
            async for one in look:
                yield one
        while not self._ended():
            self._check_time()
            async with aclosing(self._next()) as more:
                async for one in more:
                    yield one

    async def _next(self) -> AsyncGenerator[Event | Job, None]:
        """What the stream brings until it ends, or one look after a pause."""
        source = self._stream() if self._streams else self._look_after_pause()
        try:
            async with aclosing(source) as more:
                async for one in more:
                    self._away_since = None
                    yield one
        except (ConnectionFailedError, TemporaryError) as error:
            self._check_time()
            await self._endure(error)

    async def _look_after_pause(self) -> AsyncGenerator[Event | Job, None]:
        await self._exchange.wire.sleep(self._within(self._terms.poll_seconds or POLL_SECONDS))
        async with aclosing(self._look()) as look:
            async for one in look:
                yield one

    async def _look(self) -> AsyncGenerator[Event | Job, None]:
        # The job first: an event that comes in between is then seen at this look or the next.
        request = requests.get(self._job_id, self._etag)
        answer = await self._exchange.send(request)
        self._away_since = None
        if answer.status == NOT_MODIFIED:
            return
        job = parsed(Job, request, answer)
        while self._after < job.event_count:
            request = requests.part(self._job_id, "events", after=self._after)
            page = await self._exchange.ask(EventPage, request)
            for event in page.items:
                self._after = event.number
                yield event
            if not page.has_more:
                break
        # Remembered last: a look that broke off is made again from where it stopped.
        self._etag = answer.headers.get("etag")
        self._job = job
        yield job

    async def _stream(self) -> AsyncGenerator[Event | Job, None]:
        request = requests.stream(self._job_id, self._after, self._within(requests.STREAM_SECONDS))
        async with self._exchange.wire.stream(request) as flow:
            streams = await _is_stream(flow)
            if not streams:
                self._streams = flow.status == NO_CONTENT
            async with aclosing(self._flowing(flow) if streams else self._look()) as more:
                async for one in more:
                    yield one
        if not self._ended():
            # A stream that ends before the job does may end at once again.
            await self._exchange.wire.sleep(self._within(POLL_SECONDS))

    async def _flowing(self, flow: Flow) -> AsyncGenerator[Event | Job, None]:
        silent = True
        try:
            async for message in _messages(flow, self._check_time):
                silent = False
                one = self._taken(message)
                if one is not None:
                    yield one
        finally:
            # Something on the way may hold the stream back; looking works everywhere.
            self._streams = not silent

    def _taken(self, message: Message) -> Event | Job | None:
        """What a message tells that was not known."""
        if message.event == JOB_MESSAGE:
            job = _read(Job, message)
            known, self._job = self._job, job
            return None if job == known else job
        event = _read(Event, message)
        if event.number <= self._after:
            return None
        self._after = event.number
        return event

    def _ended(self) -> bool:
        return self._job is not None and self._job.done and self._after >= self._job.event_count

    def _within(self, seconds: float) -> float:
        """`seconds`, or what is left of the time if that is less."""
        if self._terms.timeout_seconds is None:
            return seconds
        left = self._began + self._terms.timeout_seconds - self._clock()
        return max(min(seconds, left), 0.01)

    def _check_time(self) -> None:
        limit = self._terms.timeout_seconds
        if limit is not None and self._clock() - self._began > limit:
            state = "unknown" if self._job is None else self._job.state
            raise WaitTimeoutError(f"job {self._job_id} is {state} after {limit:g} s")

    async def _endure(self, error: ClientError) -> None:
        """Some time has passed since the service was last heard; raises `error` if that is too long."""
        now = self._clock()
        self._away_since = now if self._away_since is None else self._away_since
        asked = error.problem.retry_after_seconds if isinstance(error, ApiError) else None
        pause = max(POLL_SECONDS, asked or 0.0)
        if now + pause - self._away_since > self._terms.outage_seconds:
            raise error
        await self._exchange.wire.sleep(self._within(pause))


async def _is_stream(flow: Flow) -> bool:
    """Whether events will come. False: there are none left, or there is no such stream here.

    Raises:
        ApiError: the key is not good, or the service cannot serve at the moment.
    """
    if flow.status < FIRST_ERROR_STATUS:
        return flow.headers.get("content-type", "").startswith(STREAM_TYPE)
    error = refusal(Incoming(flow.status, flow.headers, await flow.rest()))
    if isinstance(error, TooManyError) and error.problem.code == TOO_MANY_STREAMS:
        # Looking from time to time works as well, and takes no place.
        return False
    if isinstance(error, NotAuthenticatedError | TemporaryError):
        raise error
    return False


async def _messages(flow: Flow, check: Callable[[], None]) -> AsyncIterator[Message]:
    decoder = Decoder()
    async for piece in flow.pieces():
        for message in decoder.feed(piece):
            yield message
        check()


def _read(kind: type[T], message: Message) -> T:
    try:
        return kind.model_validate_json(message.data)
    except ValidationError as error:
        raise UnexpectedAnswerError("the event stream sends messages of an unknown form") from error
