"""Which of several sweepers works: the one whose session of the database holds a lock."""

import logging
from threading import Lock
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, Engine, create_engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from services.db.sessions import Database

# Any number serves, as long as every sweeper takes the same.
LEADER_LOCK = 0x73776570  # "swep"
# The server ends a session whose machine is gone, and with it the lock, after idle + interval x count.
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}

logger = logging.getLogger(__name__)


class Leader:
    """A place that one process at a time holds until it ends, however it ends.

    The lock belongs to a connection of its own: a pool's could be lent to someone else. A sweep that is
    under way when the connection breaks may overlap with the next leader's, which rows' locks make harmless.
    """

    def __init__(self, database: Database) -> None:
        self._engine = _single(database.engine)
        # Several threads of a process ask, on one connection.
        self._asking = Lock()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()
        self._engine.dispose()

    def leads(self) -> bool:
        """Whether this process holds the place, which it takes if it is free.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        with self._asking:
            return self._holds() or self._takes()

    def _holds(self) -> bool:
        return self._connection is not None and self._still_holds(self._connection)

    def _takes(self) -> bool:
        self._drop()
        connection = self._engine.connect()
        if connection.scalar(select(func.pg_try_advisory_lock(LEADER_LOCK))):
            logger.info("this process is the one that sweeps")
            self._connection = connection
            return True
        connection.close()
        return False

    @staticmethod
    def _still_holds(connection: Connection) -> bool:
        try:
            connection.scalar(select(1))
        except SQLAlchemyError:
            logger.warning("this process no longer sweeps: its session with the database has ended")
            return False
        return True

    def _drop(self) -> None:
        if self._connection is not None:
            # Not given back but closed, and the lock with it.
            self._connection.invalidate()
            self._connection.close()
            self._connection = None


def _single(engine: Engine) -> Engine:
    """An engine to the same database for one connection that stays: no pool, no open transaction."""
    return create_engine(
        engine.url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"connect_timeout": 5, "application_name": "ghosted-sweeper", **KEEPALIVE},
    )
