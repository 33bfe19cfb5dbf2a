"""The process that relays and sweeps until it is told to stop."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from services.artifacts.connection import UNHURRIED
from services.artifacts.storage import open_store
from services.chores import Chore, repeat
from services.config import Settings
from services.db.sessions import Database, open_database
from services.outbox.leadership import Leader
from services.outbox.publisher import open_publisher
from services.outbox.relay import BATCH, Publish, send_due
from services.outbox.sweeper import deletions, repairs
from services.outbox.traced import traced
from services.telemetry import Tracing, open_tracing
from services.workers.classes import parse_classes


def run(settings: Settings, stop: Event) -> None:
    """Relay and sweep until `stop` is set.

    In threads of their own: an object store that is slow to delete must keep neither wake-ups nor lost
    jobs waiting.
    """
    with (
        _database(settings) as database,
        _tracing(settings) as tracing,
        open_publisher(settings.redis_url.get_secret_value()) as publish,
        Leader(database) as leader,
        ThreadPoolExecutor(3) as threads,
    ):
        relay = _relay(database, traced(publish, tracing, database), settings, stop)
        rounds = [
            threads.submit(repeat, chores, stop)
            for chores in (
                (relay,),
                repairs(database, settings, leader),
                deletions(database, open_store(settings, UNHURRIED), settings, leader),
            )
        ]
        for one in rounds:
            one.result()


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    database = open_database(settings.database_url.get_secret_value())
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _tracing(settings: Settings) -> Iterator[Tracing]:
    tracing = open_tracing(settings.otlp_endpoint, "ghosted-relay")
    try:
        yield tracing
    finally:
        tracing.close()


def _relay(database: Database, publish: Publish, settings: Settings, stop: Event) -> Chore:
    classes = parse_classes(settings.memory_classes)

    def relay() -> None:
        sent = BATCH
        while sent == BATCH and not stop.is_set():
            with database.write() as session:
                sent = send_due(session, publish, classes=classes)

    return Chore("relay", settings.relay_seconds, relay)
