"""Where a job's time went, and how amounts are written."""

from datetime import UTC, datetime, timedelta

import pytest

from services.dashboard.formatting import count, duration, figure, size
from services.dashboard.history import Turn, times_of
from services.db.models import Job

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_every_second_is_either_waiting_or_running() -> None:
    """Over several attempts, both together are the time from submission to the end."""
    job = Job(created_at=START, finished_at=at(100))
    turns = [Turn(running=True, at=at(10)), Turn(running=False, at=at(30)), Turn(running=True, at=at(45))]
    spent = times_of(job, turns)
    assert (spent.queued_seconds, spent.running_seconds, spent.since) == (25, 75, None)


def test_the_clock_of_a_running_job_goes_on_from_its_earlier_attempts() -> None:
    """Counted from `since`, a job that runs again has run as long as all of its attempts together."""
    job = Job(created_at=START, finished_at=None)
    spent = times_of(
        job, [Turn(running=True, at=at(10)), Turn(running=False, at=at(30)), Turn(running=True, at=at(45))]
    )
    assert spent.since is not None
    assert (at(60) - spent.since).total_seconds() == 20 + 15
    assert spent.queued_seconds == 25


def test_a_clock_that_went_back_makes_no_time() -> None:
    """A claim that is noted as before the submission counts as no wait."""
    spent = times_of(Job(created_at=START, finished_at=at(5)), [Turn(running=True, at=at(-2))])
    assert spent.queued_seconds == 0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(None), "\N{EN DASH}"),
        (size(1 << 50), "1024.0 TiB"),
        (count(512), "512"),
        (count(134_515_008), "134.5 M"),
        (count(7e9), "7.0 B"),
        (duration(0.4), "0 s"),
        (duration(59.6), "1 min 00 s"),
        (duration(3900), "1 h 05 min"),
        (duration(90_000), "1 d 01 h"),
        (duration(-3), "0 s"),
        (figure(1234.5), "1,234.50"),
        (figure(3e38), "3.0e+38"),
        (figure(None), "\N{EN DASH}"),
    ],
)
def test_amounts_as_people_read_them(written: str, expected: str) -> None:
    """Units are chosen by size, and what is not there is a dash."""
    assert written == expected
