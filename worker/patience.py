"""Waiting for a database that is away for a moment."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import OperationalError

from services.errors import DatabaseUnavailableError

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0


def patiently(transaction: Callable[[], T], *, seconds: float) -> T:
    """What `transaction` returned; it is begun again, for `seconds`, whenever the database lets go of it.

    The answer to a commit may be lost while the commit is not: `transaction` must bear being repeated.
    It is begun at least twice: a process that stood still for longer than `seconds` has not asked yet.

    Raises:
        DatabaseUnavailableError: the database did not come back in time.
    """
    give_up_at = time.monotonic() + seconds
    wait_seconds = FIRST_WAIT_SECONDS
    again = False
    while True:
        try:
            return transaction()
        except OperationalError as error:
            if again and time.monotonic() + wait_seconds > give_up_at:
                raise DatabaseUnavailableError("the database does not answer") from error
        again = True
        time.sleep(wait_seconds)
        wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)
