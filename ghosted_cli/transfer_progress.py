"""Bytes on their way: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ghosted_cli.service_progress import PLAIN_INTERVAL_SECONDS


@contextmanager
def transfer_shown(what: str, total: int, stream: TextIO = sys.stderr) -> Iterator[Callable[[int], None]]:
    """While the block runs, whatever the callback hears of is shown as part of `total` bytes."""
    console = Console(file=stream, highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        yield PlainTransfer(what, total, console).add
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)


class PlainTransfer:
    """Lines that a log file can hold; several threads may tell of bytes."""

    def __init__(
        self, what: str, total: int, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what = what
        self.total = total
        self.console = console
        self.clock = clock
        self.done = 0
        self.said = clock()
        self.lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count `size` bytes; say how far it is, at most every few seconds."""
        with self.lock:
            self.done += size
            now = self.clock()
            if now - self.said < PLAIN_INTERVAL_SECONDS:
                return
            self.said = now
            self.console.print(f"{self.what}: {self.done:,} of {self.total:,} bytes")
