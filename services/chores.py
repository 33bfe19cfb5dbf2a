"""Work that comes back at regular times."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from services.errors import UnavailableError

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


def repeat(chores: Sequence[Chore], stop: Event) -> None:
    """Each chore is done when it is due, one after the other, until `stop` is set.

    Sets `stop` itself when a chore fails in a way that waiting will not mend, so that nothing beside it
    goes on as if all were well.
    """
    try:
        while not stop.is_set():
            for chore in chores:
                chore.run_if_due(monotonic())
            soonest = min(chore.due for chore in chores)
            stop.wait(max(0.0, soonest - monotonic()))
    finally:
        stop.set()
