"""A text of the user's is found, whatever the database does for a moment."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from services.db.sessions import Database, open_engine
from services.errors import DatabaseUnavailableError
from services.uploads import repository as uploads
from services.uploads.checking import TextFormat
from worker.config import WorkerSettings
from worker.texts import TextShelf

TIMEOUT_SECONDS = 0.2


@pytest.fixture
def upload_id(database: Database) -> UUID:
    """An upload of ten bytes."""
    with database.write() as session:
        return uploads.add(session, None, TextFormat.TXT, 10, lasts=timedelta(days=1)).id


@pytest.fixture
def hurried(worker_url: str) -> Iterator[Database]:
    """The database, for who waits for a statement for a moment only."""
    database = Database(open_engine(worker_url, statement_timeout_seconds=TIMEOUT_SECONDS))
    yield database
    database.close()


def shelf(settings: WorkerSettings, database: Database, lease_seconds: float) -> TextShelf:
    """The shelf of an attempt that nobody stops."""
    changed = settings.model_copy(update={"lease_seconds": lease_seconds})
    return TextShelf.of(changed, database, lambda: None)


def test_a_database_that_fails_for_a_moment_is_waited_for(
    settings: WorkerSettings, database: Database, hurried: Database, upload_id: UUID
) -> None:
    """What cannot be read now is read when it can be, within the lease."""
    with database.write() as session:
        session.execute(text("LOCK TABLE uploads IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(DatabaseUnavailableError):
            shelf(settings, hurried, lease_seconds=0).find(upload_id)
        release = threading.Timer(4 * TIMEOUT_SECONDS, session.rollback)
        release.start()
        found = shelf(settings, hurried, lease_seconds=30).find(upload_id)
        release.join()
    assert found is not None
    assert found.size_bytes == 10
