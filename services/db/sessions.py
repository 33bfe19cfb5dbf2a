"""Where transactions begin and end. Nothing else in the code commits."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NewType

from sqlalchemy import Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

# A function that asks for a ReadSession cannot be handed rows to change; a WriteSession may do both.
ReadSession = NewType("ReadSession", Session)
WriteSession = NewType("WriteSession", ReadSession)

DRIVER = "postgresql+psycopg"
# A server that vanishes without a word, as when a cable is pulled, is noticed within 15 s.
PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}


def open_engine(url: str, *, statement_timeout_seconds: float = 30, pool_size: int = 5) -> Engine:
    """An engine whose connections speak UTC and give up instead of waiting for ever."""
    limit_ms = int(statement_timeout_seconds * 1000)
    options = (
        "-c timezone=UTC"
        f" -c statement_timeout={limit_ms}"
        f" -c lock_timeout={limit_ms // 2}"
        f" -c idle_in_transaction_session_timeout={limit_ms}"
    )
    engine = create_engine(
        make_url(url).set(drivername=DRIVER),
        connect_args={"options": options, "application_name": "ghosted", **PATIENCE},
        pool_pre_ping=True,
        pool_size=pool_size,
        max_overflow=pool_size,
    )
    event.listen(engine, "handle_error", _of_one_class)
    return engine


def _of_one_class(context: ExceptionContext) -> OperationalError | None:
    """Whatever PostgreSQL said as it hung up is an OperationalError to the caller.

    A transaction that stood still for too long, as that of a stopped process, ends in an InternalError.
    """
    if context.is_disconnect and not isinstance(context.sqlalchemy_exception, OperationalError):
        orig = context.original_exception
        return OperationalError(context.statement, None, orig, connection_invalidated=True)
    return None


@dataclass(frozen=True)
class Database:
    """Hands out sessions over one engine."""

    engine: Engine

    @contextmanager
    def read(self) -> Iterator[ReadSession]:
        """A transaction in which PostgreSQL refuses to write."""
        engine = self.engine.execution_options(postgresql_readonly=True)
        with Session(engine, expire_on_commit=False) as session:
            yield ReadSession(session)

    @contextmanager
    def write(self) -> Iterator[WriteSession]:
        """A transaction, committed when the block ends and undone when it raises."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield WriteSession(ReadSession(session))

    def close(self) -> None:
        """No connection is open afterwards."""
        self.engine.dispose()


def open_database(url: str) -> Database:
    """The database at `url`; connects on first use."""
    return Database(open_engine(url))
