"""The process that relays and sweeps until it is told to stop."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from services.artifacts.connection import UNHURRIED
from services.artifacts.storage import open_store
from services.config import Settings
from services.db.sessions import open_database
from services.errors import UnavailableError
from services.outbox.publisher import open_publisher
from services.outbox.relay import BATCH, send_due
from services.outbox.sweeper import sweep_jobs, sweep_objects
from services.outbox.traced import traced
from services.telemetry import open_tracing

logger = logging.getLogger(__name__)


@dataclass
class Chore:
    """Work to be done every `period_seconds`; a part that does not answer only delays it."""

    name: str
    period_seconds: float
    work: Callable[[], object]
    due: float = field(default=0.0)

    def run_if_due(self, now: float) -> None:
        """The work is done, or logged as failed, if its time has come."""
        if now < self.due:
            return
        self.due = now + self.period_seconds
        try:
            self.work()
        except (SQLAlchemyError, UnavailableError) as error:
            # The parts come and go on their own; what is due stays in the database.
            logger.warning("%s failed and will be tried again: %s", self.name, type(error).__name__)


def run(settings: Settings, stop: Event) -> None:
    """Relay and sweep until `stop` is set."""
    database = open_database(settings.database_url.get_secret_value())
    # Relay and sweeps take turns: a store that hangs must not keep the wake-ups waiting.
    store = open_store(settings, UNHURRIED)
    tracing = open_tracing(settings.otlp_endpoint, "ghosted-relay")
    with open_publisher(settings.redis_url.get_secret_value()) as untraced:
        publish = traced(untraced, tracing, database)

        def relay() -> None:
            sent = BATCH
            while sent == BATCH and not stop.is_set():
                with database.write() as session:
                    sent = send_due(session, publish)

        def sweep() -> None:
            with database.write() as session:
                sweep_jobs(session, settings)

        def tidy() -> None:
            sweep_objects(database, store, settings)

        try:
            _repeat(
                (
                    Chore("relay", settings.relay_seconds, relay),
                    Chore("sweep of jobs", settings.sweep_seconds, sweep),
                    Chore("sweep of objects", settings.sweep_seconds, tidy),
                ),
                stop,
            )
        finally:
            tracing.close()
            database.close()


def _repeat(chores: tuple[Chore, ...], stop: Event) -> None:
    while not stop.is_set():
        for chore in chores:
            chore.run_if_due(monotonic())
        soonest = min(chore.due for chore in chores)
        stop.wait(max(0.0, soonest - monotonic()))
