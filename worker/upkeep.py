"""What the first process of a worker does beside waiting for the others: beats, watches, tidies up.

It never forks: a process that is forked while threads hold locks may wait for these locks for ever.
Jobs and messages are dealt with in others, so the worker is seen while it works and while it waits,
and a busy job never makes it late.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from services.chores import Chore, repeat
from services.db.sessions import Database, open_database
from services.workers.classes import GIB, parse_classes
from worker import caching
from worker.config import WorkerSettings
from worker.identity import ThisWorker
from worker.presence import Presence
from worker.scratch import remove_abandoned
from worker.watchdog import Watchdog

logger = logging.getLogger(__name__)


class Upkeep:
    """Two threads. As soon as the worker cannot be relied on, `give_up` is called, once."""

    def __init__(self, settings: WorkerSettings, this: ThisWorker, give_up: Callable[[], None]) -> None:
        self._settings = settings
        self._this = this
        self._give_up = give_up
        self._ended = threading.Event()
        self._threads = (
            threading.Thread(target=self._attend, name="beats"),
            # A large folder takes long to delete, for which nobody waits.
            threading.Thread(target=self._tidy_up, name="tidying", daemon=True),
        )

    def begin(self) -> None:
        """The threads run."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """The worker leaves the list now, and the threads end soon."""
        self._ended.set()

    def join(self) -> None:
        """The worker has left the list, if the database answers."""
        self._threads[0].join()

    def _attend(self) -> None:
        try:
            with _database(self._settings) as database:
                classes = parse_classes(self._settings.memory_classes)
                presence = Presence(database, self._this.name, self._this.place, classes)
                repeat(self._chores(database, presence), self._ended)
                _leave(presence)
        except BaseException:
            logger.exception("the worker can no longer say that it is there")
            self._give_up()
            raise

    def _chores(self, database: Database, presence: Presence) -> tuple[Chore, ...]:
        settings, this = self._settings, self._this
        limit = settings.watchdog_seconds
        dog = Watchdog(database, this, limit_seconds=limit)

        def beat() -> None:
            # One that takes no messages is no worker that anyone could wait for.
            if this.pulse.is_ready:
                presence.beat()

        def watch() -> None:
            job_id = dog.look()
            if job_id is not None:
                logger.error("job %s was announced, and this worker did not take it: it ends", job_id)
                self._ended.set()
                self._give_up()

        every = settings.heartbeat_seconds
        # The first beat is not to be missed by much: as soon as messages are taken, someone may wait.
        return (
            Chore("heartbeat", every, beat),
            Chore("watchdog", min(every, limit / 4), watch),
        )

    def _tidy_up(self) -> None:
        """Scratch folders of killed workers go, and what of the cache has had its time."""
        settings, root = self._settings, self._this.place.scratch
        limits = caching.Limits(
            keep_seconds=settings.cache_days * 86400,
            keep_bytes=None if settings.cache_gb is None else int(settings.cache_gb * GIB),
            in_use_seconds=settings.deadline_max_seconds,
        )

        def tidy() -> None:
            try:
                remove_abandoned(root)
                freed = caching.tidy(settings.cache, limits)
            except OSError as error:
                logger.warning("the cache cannot be tidied: %s", type(error).__name__)
                return
            if freed:
                logger.info("the cache is %.1f GiB smaller", freed / GIB)

        repeat((Chore("tidying", settings.tidy_seconds, tidy),), self._ended)


@contextmanager
def _database(settings: WorkerSettings) -> Iterator[Database]:
    database = open_database(settings.database_url.get_secret_value())
    try:
        yield database
    finally:
        database.close()


def _leave(presence: Presence) -> None:
    try:
        presence.leave()
    except SQLAlchemyError as error:
        logger.warning("the list of workers still shows this one: %s", type(error).__name__)
