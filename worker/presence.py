"""This worker in the list of workers."""

import os
import socket
from importlib.metadata import PackageNotFoundError, version

from services.db.sessions import Database
from services.workers import repository
from services.workers.classes import MemoryClasses
from services.workers.repository import Beat
from worker.place import Place


class Presence:
    """Tells the database that the worker `name` is there."""

    def __init__(self, database: Database, name: str, place: Place, classes: MemoryClasses) -> None:
        self._database = database
        self._name = name
        self._place = place
        self._devices = place.devices()
        self._class = classes.name_of(self._devices[0].memory_bytes)

    def beat(self) -> None:
        """The worker was seen now, with what is free now.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        room = self._place.room()
        beat = Beat(
            id=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            devices=self._devices,
            memory_class=self._class,
            memory_bytes=self._devices[0].memory_bytes,
            free_memory_bytes=room.memory_bytes,
            free_disk_bytes=room.disk_bytes,
        )
        with self._database.write() as session:
            repository.record_beat(session, beat)

    def leave(self) -> None:
        """The worker is not in the list.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer; the list will forget it by itself.
        """
        with self._database.write() as session:
            repository.remove(session, self._name)


def _version() -> str:
    try:
        return version("ghosted")
    except PackageNotFoundError:
        return "unknown"
