from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from services.dashboard.job_timeline import STAGES, timeline
from services.db.models import JobEvent

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class History:
    """Events of one job, told in seconds after its submission."""

    def __init__(self) -> None:
        self.events: list[JobEvent] = []
        self._numbers: Iterator[int] = count(1)
        self._attempt = 0

    def at(self, second: float, kind: str, **payload: Any) -> "History":
        self._attempt += kind == "claimed"
        self.events.append(
            JobEvent(
                job_id=UUID(int=1),
                number=next(self._numbers),
                attempt=self._attempt,
                type=kind,
                payload=payload,
                at=BEGIN + timedelta(seconds=second),
            )
        )
        return self


@pytest.fixture
def lost() -> History:
    """A first attempt that is lost while it scores, and a second one that calibrates."""
    history = History().at(5, "claimed").at(6, "stage_started", stage="load")
    history.at(8, "stage_finished", stage="load", seconds=2.0, peak_memory_bytes=7)
    history.at(8, "stage_started", stage="score").at(30, "requeued", cause="worker_lost")
    history.at(42, "claimed").at(43, "stage_started", stage="load")
    return history.at(45, "stage_finished", stage="load", seconds=1.5, peak_memory_bytes=9)


def test_a_job_that_waits_has_all_stages_before_it() -> None:
    """Nothing has run, and every stage is listed, so that the list never grows."""
    found = timeline([], BEGIN)
    assert found.latest is None
    assert [span.stage for span in found.stages] == list(STAGES)
    assert {span.outcome for span in found.stages} == {"not run"}


def test_an_attempt_that_was_lost_is_told_with_its_cause(lost: History) -> None:
    """The first attempt says how and where it ended, and how long it had waited."""
    (first,) = timeline(lost.events, BEGIN).earlier
    assert (first.number, first.ended, first.cause) == (1, "requeued", "worker_lost")
    assert (first.waited_seconds, first.seconds) == (5, 25)
    assert [(span.stage, span.outcome, span.seconds) for span in first.stages] == [
        ("load", "done", 2.0),
        ("score", "broken off", 22.0),
    ]


def test_the_latest_attempt_is_the_one_that_is_shown(lost: History) -> None:
    """Its stages come in their order, with those to come; it waited since the attempt before ended."""
    lost.at(45, "stage_started", stage="score")
    found = timeline(lost.events, BEGIN)
    assert found.latest is not None
    assert (found.latest.number, found.latest.waited_seconds, found.latest.ended) == (2, 12, None)
    outcomes = {span.stage: span.outcome for span in found.stages}
    assert (outcomes["load"], outcomes["score"], outcomes["calibrate"]) == ("done", "running", "not run")
    assert [span.stage for span in found.stages] == list(STAGES)
    assert found.longest_seconds == 1.5


def test_a_stage_that_nobody_knows_is_shown_too(lost: History) -> None:
    """A newer worker may have more stages than this page knows."""
    lost.at(46, "stage_started", stage="polish").at(
        50, "stage_finished", stage="polish", seconds=4.0, peak_memory_bytes=None
    )
    assert timeline(lost.events, BEGIN).stages[-1].stage == "polish"


def test_a_stage_that_runs_in_parts_is_one_row(lost: History) -> None:
    """Its time is that of all parts, also while the last one runs, and its memory that of the largest."""
    lost.at(50, "stage_started", stage="evaluate")
    lost.at(60, "stage_finished", stage="evaluate", seconds=9.5, peak_memory_bytes=30)
    lost.at(62, "stage_started", stage="evaluate")
    *_, running = (span for span in timeline(lost.events, BEGIN).stages if span.stage == "evaluate")
    assert (running.outcome, running.started_at) == ("running", BEGIN + timedelta(seconds=52.5))
    lost.at(65, "stage_finished", stage="evaluate", seconds=3.0, peak_memory_bytes=20)
    found = timeline(lost.events, BEGIN)
    assert [span.stage for span in found.stages] == list(STAGES)
    (whole,) = (span for span in found.stages if span.stage == "evaluate")
    assert (whole.outcome, whole.seconds, whole.peak_memory_bytes) == ("done", 12.5, 30)


@pytest.mark.parametrize("seconds", [None, "soon", [1]])
def test_a_payload_of_another_kind_is_no_fault_of_the_page(seconds: Any) -> None:
    """What a worker wrote is not trusted to have the form that today's does."""
    history = History().at(1, "claimed").at(1, "stage_started", stage="load")
    history.at(2, "stage_finished", stage="load", seconds=seconds)
    (first, *_) = timeline(history.events, BEGIN).stages
    assert (first.outcome, first.seconds) == ("done", None)
