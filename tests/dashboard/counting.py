"""The statements that a page costs."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event

from services.db.sessions import Database


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements that are sent meanwhile."""
    sent: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
