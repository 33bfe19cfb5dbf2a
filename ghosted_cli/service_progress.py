"""A distant job's progress: a bar a stage on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

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
from ghosted_client import Event, Job

PLAIN_INTERVAL_SECONDS = 5.0
MOST_COUNTED = 1000


class Display(Protocol):
    """Where a watched job is shown."""

    def show_event(self, event: Event) -> None:
        """Show something that happened."""

    def show_job(self, job: Job) -> None:
        """Show how far the job is."""


@contextmanager
def display(stream: TextIO) -> Iterator[Display]:
    """Bars on a terminal, a line every few seconds elsewhere."""
    console = Console(file=stream, highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        yield PlainDisplay(console)
        return
    columns = (
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeftColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield BarDisplay(progress)


def show(seen: Iterable[Event | Job], where: Display) -> Job | None:
    """Everything in `seen` is shown; returns the job as it was last seen."""
    last: Job | None = None
    for one in seen:
        if isinstance(one, Event):
            where.show_event(one)
        else:
            where.show_job(one)
            last = one
    return last


def line_of(event: Event) -> str:
    """An event in one line."""
    payload = event.payload
    match event.type:
        case "log":
            line = str(payload.get("message", ""))
        case "metric":
            value = payload.get("value")
            line = f"{payload.get('name')} = {payload.get('reason') if value is None else f'{value:.4g}'}"
        case "stage_started":
            line = f"{payload.get('stage')}: started"
        case "stage_finished":
            line = f"{payload.get('stage')}: done in {payload.get('seconds', 0):.1f} s"
        case "layers_chosen":
            line = f"{len(payload.get('removed', ()))} of {payload.get('layer_count')} layers go"
        case "requeued":
            line = f"attempt {event.attempt} lost ({payload.get('cause')}); waiting for another"
        case _:
            line = event.type.replace("_", " ")
    return harmless(line)


def harmless(text: str) -> str:
    """`text` from elsewhere as text: nothing in it moves the cursor or changes the terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


class BarDisplay:
    """One bar a stage."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None

    def show_event(self, event: Event) -> None:
        """Begin or end a bar, or print above it."""
        if event.type == "stage_started":
            self._end()
            stage, unit = str(event.payload["stage"]), event.payload.get("unit") or ""
            self.task = self.progress.add_task(stage, total=event.payload.get("total"), unit=unit)
        elif event.type == "stage_finished":
            self._complete()
            self._end()
        else:
            self._end_unless_running(event)
            self.progress.console.print(line_of(event), markup=False)

    def _end_unless_running(self, event: Event) -> None:
        if event.type not in {"log", "metric", "layers_chosen"}:
            self._end()

    def _complete(self) -> None:
        # The last look at the job was before the stage's end.
        for task in self.progress.tasks:
            if task.id == self.task and task.total is not None:
                self.progress.update(task.id, completed=task.total)

    def _end(self) -> None:
        if self.task is not None:
            self.progress.stop_task(self.task)
            self.task = None

    def show_job(self, job: Job) -> None:
        """Move the bar."""
        if self.task is not None and job.progress is not None:
            self.progress.update(self.task, completed=job.progress.done)


class PlainDisplay:
    """Lines that a log file can hold."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.said = self.stage_began = clock()
        self.last = ""

    def show_event(self, event: Event) -> None:
        """Print a line."""
        self.console.print(line_of(event))
        self.said = self.clock()
        if event.type == "stage_started":
            self.stage_began = self.said

    def show_job(self, job: Job) -> None:
        """Say how far the job is, at most every few seconds and only if that changed."""
        line = standing(job)
        if line != self.last and self.clock() - self.said >= PLAIN_INTERVAL_SECONDS:
            self.console.print(line + self._left(job))
            self.said, self.last = self.clock(), line

    def _left(self, job: Job) -> str:
        """How long the stage still takes, if it goes on as it did; the service saw more of it than we."""
        progress = job.progress
        if job.state != "running" or progress is None or progress.total is None:
            return ""
        seconds = progress.eta_seconds
        if seconds is None:
            seconds = seconds_left(self.clock() - self.stage_began, progress.done, progress.total)
        return "" if seconds is None else f", {seconds:.0f} s left"


def standing(job: Job) -> str:
    """Where a job stands, in a few words."""
    if job.state == "queued":
        position = job.queue_position
        # The service counts no further.
        return f"queued, {position}{' or more' if position == MOST_COUNTED else ''} before it"
    if job.state != "running" or job.progress is None:
        return job.state
    progress = job.progress
    of_total = "" if progress.total is None else f" of {progress.total:,}"
    return f"{progress.stage}: {progress.done:,}{of_total} {progress.unit or ''}".rstrip()
