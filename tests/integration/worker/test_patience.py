"""A write that PostgreSQL cut off is made again."""

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from services.db.sessions import open_engine
from services.errors import DatabaseUnavailableError
from worker.patience import patiently

LIMIT_SECONDS = 0.2


@pytest.fixture
def session(worker_url: str) -> Iterator[Session]:
    """A session whose transactions may not stand still for long."""
    engine = open_engine(worker_url, statement_timeout_seconds=LIMIT_SECONDS)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_write_of_a_process_that_stood_still(session: Session) -> None:
    """Cut off amid its transaction, as after SIGSTOP, it is tried once more though its time is over."""
    tries = 0

    def transaction() -> int:
        nonlocal tries
        tries += 1
        with session.begin():
            session.execute(text("SELECT 1"))
            if tries == 1:
                time.sleep(3 * LIMIT_SECONDS)
            return int(session.execute(text("SELECT 2")).scalar_one())

    assert patiently(transaction, seconds=LIMIT_SECONDS) == 2
    assert tries == 2


def test_write_that_is_cut_off_again_and_again(session: Session) -> None:
    """The database counts as away in the end."""

    def transaction() -> None:
        with session.begin():
            session.execute(text("SELECT 1"))
            time.sleep(3 * LIMIT_SECONDS)
            session.execute(text("SELECT 2"))

    with pytest.raises(DatabaseUnavailableError):
        patiently(transaction, seconds=LIMIT_SECONDS)
