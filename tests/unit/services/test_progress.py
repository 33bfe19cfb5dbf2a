from io import StringIO
from typing import Any

from rich.console import Console
from rich.progress import Progress

from ghosted_cli.service_progress import PLAIN_INTERVAL_SECONDS, BarDisplay, PlainDisplay, display, show
from ghosted_cli.time_left import seconds_left
from ghosted_client import Event, Job

AT = "2026-01-01T00:00:00Z"


def event(kind: str, **payload: Any) -> Event:
    """An event of the first attempt."""
    return Event.model_validate({"number": 1, "attempt": 1, "type": kind, "payload": payload, "at": AT})


def job(done: int, state: str = "running", total: int = 100) -> Job:
    """A job that has done so much of `total` tokens."""
    nothing = dict.fromkeys(Job.model_fields)
    progress = {"stage": "calibrate", "done": done, "total": total, "unit": "tokens"}
    values = {"id": "0" * 32, "state": state, "done": False, "spec": {}, "spec_digest": "", "labels": {}}
    numbers = {"deadline_seconds": 1, "attempt": 1, "event_count": 1, "created_at": AT}
    return Job.model_validate({**nothing, **values, **numbers, "progress": progress})


def test_plain_lines_are_rare() -> None:
    """Between events, progress is told at most every few seconds, only if it changed, with the time left."""
    now = [0.0]
    text = StringIO()
    plain = PlainDisplay(Console(file=text), clock=lambda: now[0])
    for second in range(20):
        now[0] = second
        plain.show_job(job(second // 10))
    lines = text.getvalue().splitlines()
    assert lines == ["calibrate: 0 of 100 tokens", "calibrate: 1 of 100 tokens, 990 s left"]
    assert PLAIN_INTERVAL_SECONDS <= 10


def test_no_guess_before_one_percent() -> None:
    """The first tokens tell of the start, not of the rest; bars and lines wait for 1 % to be done."""
    now = [0.0]
    text = StringIO()
    plain = PlainDisplay(Console(file=text), clock=lambda: now[0])
    for done in (9, 10):
        now[0] += PLAIN_INTERVAL_SECONDS
        plain.show_job(job(done, total=1000))
    early, late = text.getvalue().splitlines()
    assert "left" not in early
    assert late.endswith(f", {2 * PLAIN_INTERVAL_SECONDS * 99:.0f} s left")
    assert seconds_left(1.0, 9, 1000) is None
    assert seconds_left(1.0, 1000, 1000) == 0


def test_a_bar_follows_its_stage() -> None:
    """The bar of a stage is full and stands still once the stage is over; other events stand above it."""
    text = StringIO()
    with Progress(console=Console(file=text, force_terminal=True, width=100, highlight=False)) as progress:
        bars = BarDisplay(progress)
        seen: list[Event | Job] = [
            event("stage_started", stage="calibrate", total=100, unit="tokens"),
            event("log", message="a [b] c"),
            job(40),
            event("stage_finished", stage="calibrate", seconds=1.0),
            job(90),
        ]
        assert show(seen, bars) == seen[-1]
        (task,) = progress.tasks
    assert (task.description, task.completed, task.total) == ("calibrate", 100, 100)
    assert task.stop_time is not None
    assert "a [b] c" in text.getvalue()


def test_a_file_gets_plain_lines() -> None:
    """Where there is no terminal, nothing moves the cursor."""
    text = StringIO()
    with display(text) as where:
        where.show_event(event("stage_started", stage="load"))
    assert text.getvalue() == "load: started\n"
