"""Notices that this worker stands still although there is work for it.

A connection to the broker can die without either side being told. The worker then waits for ever for a
message that is there. Only the database knows better: it holds the queued jobs, and when they were announced.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Double, Select, cast, exists, func, select, update

from services.db.models import Job, OutboxMessage
from services.db.sessions import Database, ReadSession, WriteSession
from services.jobs.rows import RUN_JOB
from services.jobs.states import JobState
from worker.identity import ThisWorker
from worker.place import Room

# The most queued jobs that are looked at.
MOST_WATCHED = 100
# A worker that takes no messages yet is only starting, for so long.
STARTING_SECONDS = 60.0


@dataclass(frozen=True)
class Waiting:
    """A queued job that this worker could take; `sent_seconds` is the age of its wake-up, None: not sent."""

    job_id: UUID
    sent_seconds: float | None


@dataclass(frozen=True)
class Verdict:
    """`unheard` jobs are to be announced once more; `stuck` is one that was announced in vain, if any."""

    unheard: tuple[UUID, ...] = ()
    stuck: UUID | None = None


class Suspicion:
    """How long each job has been waiting while this worker did nothing.

    At half of `limit_seconds` a wake-up that was sent before that time is taken for lost, and is to be
    sent again. At the whole of it this worker is stuck, if a wake-up was sent meanwhile: if none was,
    the broker or the relay is at fault, and a restart would mend nothing.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._since: Mapping[UUID, float] = {}
        self._announced: frozenset[UUID] = frozenset()

    def clear(self) -> None:
        """This worker works, or nothing is known."""
        self._since, self._announced = {}, frozenset()

    def look(self, waiting: Sequence[Waiting], now: float) -> Verdict:
        """What to make of the jobs that wait at the monotonic time `now`."""
        self._since = {one.job_id: self._since.get(one.job_id, now) for one in waiting}
        unheard = tuple(one.job_id for one in waiting if self._is_unheard(one, now))
        self._announced = (self._announced & self._since.keys()) | set(unheard)
        stuck = next((one.job_id for one in waiting if self._is_in_vain(one, now)), None)
        return Verdict(unheard, stuck)

    def _is_unheard(self, one: Waiting, now: float) -> bool:
        waited = now - self._since[one.job_id]
        if one.sent_seconds is None or one.job_id in self._announced:
            return False
        return waited >= self._limit / 2 and one.sent_seconds > waited

    def _is_in_vain(self, one: Waiting, now: float) -> bool:
        waited = now - self._since[one.job_id]
        if one.sent_seconds is None or waited < self._limit:
            return False
        return self._limit / 4 <= one.sent_seconds <= waited


class Watchdog:
    """Looks at the database for one worker."""

    def __init__(self, database: Database, this: ThisWorker, *, limit_seconds: float) -> None:
        self._database = database
        self._this = this
        self._suspicion = Suspicion(limit_seconds)
        self._started = self._looked = time.monotonic()

    def look(self) -> UUID | None:
        """A job that shows that this worker stands still, if there is one.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        before, self._looked = self._looked, time.monotonic()
        if not self._this.pulse.is_ready and self._looked < self._started + STARTING_SECONDS:
            return None
        room = self._this.place.room()
        with self._database.read() as session:
            if self._this.pulse.done_at > before or _runs_something(session, self._this.name):
                self._suspicion.clear()
                return None
            waiting = _waiting(session, room)
        verdict = self._suspicion.look(waiting, time.monotonic())
        if verdict.unheard:
            with self._database.write() as session:
                _announce(session, verdict.unheard)
        return verdict.stuck


def _runs_something(session: ReadSession, name: str) -> bool:
    return bool(session.scalar(select(exists().where(Job.state == JobState.RUNNING, Job.worker == name))))


def _waiting(session: ReadSession, room: Room) -> Sequence[Waiting]:
    age = func.extract("epoch", func.now() - OutboxMessage.sent_at)
    query: Select[UUID, float | None] = (
        select(Job.id, cast(age, Double))
        .join(OutboxMessage, (OutboxMessage.job_id == Job.id) & (OutboxMessage.topic == RUN_JOB))
        .where(Job.state == JobState.QUEUED, OutboxMessage.sends > 0)
        .order_by(Job.id)
        .limit(MOST_WATCHED)
    )
    if room.memory_bytes is not None:
        query = query.where(func.coalesce(Job.needs_memory_bytes, 0) <= room.memory_bytes)
    if room.disk_bytes is not None:
        query = query.where(func.coalesce(Job.needs_disk_bytes, 0) <= room.disk_bytes)
    return [Waiting(job_id, age) for job_id, age in session.execute(query)]


def _announce(session: WriteSession, jobs: Sequence[UUID]) -> None:
    """The wake-ups of `jobs` are to be sent once more."""
    session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.job_id.in_(jobs), OutboxMessage.topic == RUN_JOB)
        .values(sent_at=None, available_at=func.now())
        .execution_options(synchronize_session=False)
    )
