"""Moments that a signal must not cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM that arrive in the body take effect after it.

    Only the main thread handles signals in Python, so in any other there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    former = {number: signal.signal(number, remember) for number in DEFERRED}
    try:
        yield
    finally:
        for number, handler in former.items():
            # None stands for a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in dict.fromkeys(arrived):
            signal.raise_signal(late)
