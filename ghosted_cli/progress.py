"""A job's events on a terminal, or as plain lines where there is none."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from ghosted_cli.time_left import TimeLeftColumn, seconds_left
from ghosted_core.recorder import (
    Event,
    Logged,
    MetricMeasured,
    Recorder,
    StageFinished,
    StageProgressed,
    StageStarted,
)

PLAIN_INTERVAL_SECONDS = 5.0


@contextmanager
def progress_recorder(stream: TextIO) -> Iterator[Recorder]:
    """Bars with time left on a terminal, a line every few seconds elsewhere."""
    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        yield PlainRecorder(console)
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeftColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield BarRecorder(progress)


class BarRecorder:
    """One bar a stage."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None

    def record(self, event: Event) -> None:
        """Move the bar of the running stage, or print above it."""
        match event:
            case StageStarted(stage, total, unit):
                self.task = self.progress.add_task(stage, total=total, unit=unit, note="")
            case StageProgressed(_, done) if self.task is not None:
                self.progress.update(self.task, completed=done)
            case StageFinished(_, _, memory) if self.task is not None:
                self.progress.update(self.task, note=f"{memory / 1e9:.2f} GB")
                self.progress.stop_task(self.task)
            case Logged():
                self.progress.console.print(str(event), markup=False)
            case MetricMeasured(name, value):
                self.progress.console.print(f"{name} = {value:.4g}", markup=False)


class PlainRecorder:
    """Lines that a log file can hold."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started = self.said = time.monotonic()
        self.total: int | None = None
        self.unit = ""

    def record(self, event: Event) -> None:
        """Say what happened; progress at most every few seconds."""
        match event:
            case StageStarted(stage, total, unit):
                self.started = self.said = time.monotonic()
                self.total, self.unit = total, unit
                self._say(f"{stage}: started")
            case StageProgressed(stage, done):
                self._progress(stage, done)
            case StageFinished(stage, seconds, memory):
                self._say(f"{stage}: done in {seconds:.1f} s, peak memory {memory / 1e9:.2f} GB")
            case Logged():
                self._say(str(event))
            case MetricMeasured(name, value):
                self._say(f"{name} = {value:.4g}")

    def _progress(self, stage: str, done: int) -> None:
        now = time.monotonic()
        if self.total is None or not 0 < done < self.total or now - self.said < PLAIN_INTERVAL_SECONDS:
            return
        self.said = now
        left = seconds_left(now - self.started, done, self.total)
        ending = "" if left is None else f", {left:.0f} s left"
        self._say(f"{stage}: {done:,} of {self.total:,} {self.unit}{ending}")

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)
