"""/v1/jobs/{id}/events/stream: what happens to a job, as it happens (server-sent events)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Message, Send

from services.addresses import address_of
from services.db.sessions import Database
from services.dependencies import CurrentCaller, CurrentViewer, Tools
from services.jobs import listing, repository
from services.jobs.feed import Channel, Feed, Seen, looking_at
from services.jobs.places import Places
from services.jobs.schemas import EventRead, JobRead
from services.jobs.showing import show_one

PING_SECONDS = 15.0
# Who takes no byte for so long has gone, or ties up what others could have.
TAKE_SECONDS = 60.0
PAGE = 500
LARGEST_NUMBER = 2**31 - 1
NO_CONTENT = 204
HEADERS = {
    "Cache-Control": "no-store",
    # nginx would hold the events back until its buffer is full.
    "X-Accel-Buffering": "no",
}


logger = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """Server-sent events. FastAPI's own class takes generators only, which cannot answer 204."""

    media_type = "text/event-stream"
    take_seconds = TAKE_SECONDS

    async def stream_response(self, send: Send) -> None:
        """Send all messages; end without a word where the client does not take one in time."""

        async def sending(message: Message) -> None:
            await asyncio.wait_for(send(message), self.take_seconds)

        try:
            await super().stream_response(sending)
        except TimeoutError:
            # The connection is closed: an answer that ends without its end.
            logger.info("an event stream ends: its client takes nothing")


router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


async def _feed(request: Request, tools: Tools) -> Feed:
    # Made for the first watcher; here, in the event loop, nobody comes in between.
    if not isinstance(getattr(request.app.state, "feed", None), Feed):
        request.app.state.feed = Feed(looking_at(tools.database, lease_seconds=tools.settings.lease_seconds))
    feed: Feed = request.app.state.feed
    return feed


async def _place(request: Request, tools: Tools, caller: CurrentCaller) -> AsyncIterator[None]:
    """One stream of the key is open until the answer has ended, however it ends."""
    places = getattr(request.app.state, "places", None)
    if not isinstance(places, Places):
        places = request.app.state.places = Places(tools.settings.event_streams_per_key)
    who = address_of(request) if caller.key_id is None else str(caller.key_id)
    async with places.taken(who):
        yield


@dataclass(frozen=True)
class Watching:
    """One client's way through the events of one job."""

    database: Database
    feed: Feed
    job_id: UUID
    start: JobRead
    after: int
    ping_seconds: float = PING_SECONDS

    async def messages(self) -> AsyncIterator[bytes]:
        """The events after number `after`, the job whenever it changed, pings; ends with the job."""
        sent = self.after
        shown: JobRead | None = None
        job: JobRead | None = self.start
        async with self.feed.watch(self.job_id, self.start.event_count) as channel:
            fresh: Sequence[EventRead] = ()
            while job is not None:
                async for event in self._between(sent, fresh, job.event_count):
                    sent = event.number
                    yield _event(event)
                if job != shown:
                    shown = job
                    yield _job(job)
                if job.done and sent >= job.event_count:
                    return
                seen = await _next(channel, self.ping_seconds, job)
                if seen is None:
                    yield format_sse_event(comment="ping")
                else:
                    job, fresh = seen.job, seen.events

    async def _between(self, sent: int, fresh: Sequence[EventRead], until: int) -> AsyncIterator[EventRead]:
        """The events sent + 1 .. until: those of the look if they follow on, else from the database."""
        if fresh and fresh[0].number <= sent + 1:
            for event in fresh:
                if event.number > sent:
                    sent = event.number
                    yield event
        while sent < until:
            page = await to_thread.run_sync(partial(_page, self.database, self.job_id, sent))
            if not page:
                return
            for event in page:
                yield event
            sent = page[-1].number


def _page(database: Database, job_id: UUID, after: int) -> list[EventRead]:
    with database.read() as session:
        events = listing.list_events(session, job_id, after=after, limit=PAGE)
        return [EventRead.model_validate(event) for event in events]


async def _next(channel: Channel, patience: float, known: JobRead) -> Seen | None:
    """What the next look finds other than `known`; None if that takes longer than `patience`."""
    changed = channel.changed
    if channel.seen is not None and channel.seen.job != known and not _older(channel.seen, known):
        return channel.seen
    try:
        await asyncio.wait_for(changed.wait(), patience)
    except TimeoutError:
        return None
    return channel.seen


def _older(seen: Seen, known: JobRead) -> bool:
    # Another watcher's last look may have been before this one's first.
    return seen.job is not None and seen.job.event_count < known.event_count


def _event(event: EventRead) -> bytes:
    return format_sse_event(data_str=event.model_dump_json(), event=event.type, id=str(event.number))


def _job(job: JobRead) -> bytes:
    # Without an id: where to go on is said by events alone.
    return format_sse_event(data_str=job.model_dump_json(), event="job")


def _start(tools: Tools, viewer: CurrentViewer, job_id: UUID) -> JobRead:
    # A transaction of its own: the stream outlives any that it could begin in.
    with tools.database.read() as session:
        job = repository.get(session, viewer, job_id)
        return show_one(session, job, lease_seconds=tools.settings.lease_seconds)


@router.get("/{job_id}/events/stream", response_class=EventStream, dependencies=[Depends(_place)])
async def stream_events(
    job_id: UUID,
    tools: Tools,
    start: Annotated[JobRead, Depends(_start)],
    feed: Annotated[Feed, Depends(_feed)],
    last_event_id: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            le=LARGEST_NUMBER,
            description="As `after`; browsers send it on return.",
        ),
    ] = None,
    after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER, description="The last number already seen.")] = 0,
) -> Response:
    """What happens to a job, as it happens (server-sent events); the stream ends with the job.

    Each event of the job is a message with its type as `event`, its number as `id` and the event as
    JSON in `data`. Whenever state or progress changed, a message `job` holds the job itself. 204 says
    that the job has ended and that you have seen all of it.
    """
    seen = after if last_event_id is None else last_event_id
    if start.done and seen >= start.event_count:
        return Response(status_code=NO_CONTENT)
    watching = Watching(tools.database, feed, job_id, start, seen)
    return EventStream(watching.messages(), headers=HEADERS)
