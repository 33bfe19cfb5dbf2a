"""Looks after watched jobs: one poller a process, however many watch, and none while nobody does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from anyio import to_thread
from sqlalchemy import Integer, Uuid, column, select, values

from services.db.models import Job, JobEvent
from services.db.sessions import Database, ReadSession
from services.jobs.schemas import EventRead, JobRead
from services.jobs.showing import show

LOOK_SECONDS = 0.5
# After a fault the poller looks less often, so that it does not add to one of the database.
FAULT_SECONDS = 5.0
EVENTS_AT_ONCE = 1000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen:
    """What a look found of a job: itself, or None where it is gone, and its events since the last look."""

    job: JobRead | None
    events: tuple[EventRead, ...] = ()


Look = Callable[[Mapping[UUID, int]], Mapping[UUID, Seen]]


@dataclass
class Channel:
    """One watched job: what was seen last, and who waits for more. Belongs to the event loop."""

    known: int
    watchers: int = 0
    seen: Seen | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, seen: Seen) -> None:
        """Whoever waits goes on with `seen`, if that is new."""
        if self.seen is not None and not seen.events and seen.job == self.seen.job:
            return
        self.seen = seen
        if seen.events:
            self.known = seen.events[-1].number
        # Each waiter holds the event that it waits for; the next change has one of its own.
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Feed:
    """The watched jobs of one process."""

    def __init__(self, look: Look, look_seconds: float = LOOK_SECONDS) -> None:
        self._look = look
        self._look_seconds = look_seconds
        self._channels: dict[UUID, Channel] = {}
        self._poller: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self, job_id: UUID, known: int) -> AsyncIterator[Channel]:
        """The job is looked after; events up to number `known` are not told again to anyone new."""
        channel = self._channels.setdefault(job_id, Channel(known))
        channel.watchers += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._run())
        try:
            yield channel
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                self._channels.pop(job_id, None)

    async def _run(self) -> None:
        while self._channels:
            pause = await self._tell_all()
            await asyncio.sleep(pause)

    async def _tell_all(self) -> float:
        known = {job_id: channel.known for job_id, channel in self._channels.items()}
        try:
            found = await to_thread.run_sync(self._look, known)
        except Exception:
            # Whatever it is: without a poller all who watch would wait for ever.
            logger.warning("the watched jobs could not be read", exc_info=True)
            return FAULT_SECONDS
        for job_id, seen in found.items():
            channel = self._channels.get(job_id)
            # Who came during the look may know less than this look assumed; the next one serves all.
            if channel is not None:
                channel.tell(seen)
        return self._look_seconds


def looking_at(database: Database, *, lease_seconds: float) -> Look:
    """A look at the jobs of `database`: a fixed number of statements, however many are watched."""

    def look(known: Mapping[UUID, int]) -> Mapping[UUID, Seen]:
        with database.read() as session:
            return _seen(session, known, lease_seconds)

    return look


def _seen(session: ReadSession, known: Mapping[UUID, int], lease_seconds: float) -> Mapping[UUID, Seen]:
    rows = session.scalars(select(Job).where(Job.id.in_(known))).all()
    jobs = {job.id: job for job in show(session, rows, lease_seconds=lease_seconds)}
    events: dict[UUID, list[EventRead]] = {}
    behind = {one: known[one] for one, job in jobs.items() if job.event_count > known[one]}
    for event in _new_events(session, behind) if behind else ():
        events.setdefault(event.job_id, []).append(EventRead.model_validate(event))
    return {one: Seen(jobs.get(one), tuple(events.get(one, ()))) for one in known}


def _new_events(session: ReadSession, behind: Mapping[UUID, int]) -> Sequence[JobEvent]:
    after = values(column("job_id", Uuid()), column("number", Integer()), name="after").data(
        list(behind.items())
    )
    query = (
        select(JobEvent)
        .join(after, (JobEvent.job_id == after.c.job_id) & (JobEvent.number > after.c.number))
        .order_by(JobEvent.job_id, JobEvent.number)
        .limit(EVENTS_AT_ONCE)
    )
    return session.scalars(query).all()
