"""A job that runs longer than it may fails as `deadline_exceeded`, in whatever stage it is."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from services.errors import InvalidRequestError
from services.jobs.service import deadline_seconds
from services.jobs.states import JobState
from tests.faults.jobs import Jobs
from tests.faults.s3_proxy import Hang, before
from tests.faults.supervised import Supervised, staged, supervising
from worker.config import WorkerSettings

# Time enough for the stages before the one in question, on a busy machine too.
DEADLINE_SECONDS = 20
MOST_LATE_SECONDS = 15
Figure = Callable[[str, object], None]


@pytest.fixture
def here(settings: WorkerSettings, tmp_path: Path) -> WorkerSettings:
    """A worker with a scratch folder of the test's own, and parts as short as they may be."""
    return settings.model_copy(update={"s3_part_bytes": 5 * 2**20, "scratch": tmp_path / "scratch"})


def check_failed(running: Supervised, stage: str, deadline: float, figure: Figure) -> None:
    """The job has failed for its deadline, soon after it, in `stage`, and for good."""
    job = running.join()
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert (job.failure["code"], job.failure["stage"]) == ("deadline_exceeded", stage)
    assert job.failure["retryable"] is False
    assert job.started_at is not None
    assert job.finished_at is not None
    late = (job.finished_at - job.started_at).total_seconds() - deadline
    assert 0 <= late < MOST_LATE_SECONDS
    figure("seconds after the deadline", late)


def test_while_the_job_runs(jobs: Jobs, here: WorkerSettings, figure: Figure) -> None:
    """A stage that takes too long ends with the deadline."""
    job_id = jobs.submit(staged("load"), deadline_seconds=2)
    with supervising(jobs, job_id, here) as running:
        check_failed(running, "load", 2, figure)
    running.check_gone()


@dataclass(frozen=True)
class Case:
    """Where a job is when its time is up: what the stand-in does, what the store does, and the stage."""

    words: tuple[str, ...]
    hanging: str | None
    for_ever: bool
    stage: str


CASES = (
    Case(("save",), None, for_ever=True, stage="save"),
    Case(("mib12",), "part", for_ever=True, stage="upload"),
    # Tried again and again: no patience outlasts a deadline.
    Case(("mib12",), "part", for_ever=False, stage="upload"),
    Case(("mib12",), "get", for_ever=True, stage="verify"),
    Case(("verify",), None, for_ever=True, stage="verify"),
)


def test_late_stages(jobs: Jobs, here: WorkerSettings, figure: Figure) -> None:
    """Saving, transfers that hang or fail, and the reload all end with the deadline; nothing is left."""
    with ExitStack() as stack:
        # At once, because each of them waits more than it works.
        running = [stack.enter_context(under_way(jobs, here, number)) for number in range(len(CASES))]
        for case, one in zip(CASES, running, strict=True):
            check_failed(one, case.stage, DEADLINE_SECONDS, figure)
    for one in running:
        one.check_gone()


@contextmanager
def under_way(jobs: Jobs, here: WorkerSettings, number: int) -> Iterator[Supervised]:
    """The case's job, supervised on a store of its kind."""
    case = CASES[number]
    job_id = jobs.submit(staged(*case.words), deadline_seconds=DEADLINE_SECONDS)
    with before(here.s3_endpoint) as proxy:
        proxy.plan = lambda asked: Hang() if asked.kind == case.hanging else None
        if not case.for_ever:
            proxy.go_on.set()
        changes = {"s3_endpoint": proxy.address, "scratch": here.scratch / str(number)}
        with supervising(jobs, job_id, here, **changes) as running:
            yield running


def test_deadlines_are_settings(settings: WorkerSettings) -> None:
    """A job without a deadline gets the default; none gets more than the longest."""
    changed = settings.model_copy(update={"deadline_default_seconds": 50, "deadline_max_seconds": 60})
    assert (deadline_seconds(None, changed), deadline_seconds(60, changed)) == (50, 60)
    with pytest.raises(InvalidRequestError):
        deadline_seconds(61, changed)


def test_waiting_does_not_count(jobs: Jobs, here: WorkerSettings) -> None:
    """The clock runs from when a worker begins, not from submission."""
    job_id = jobs.submit(staged(), deadline_seconds=600)
    grow_old(jobs, job_id, 3600)
    with supervising(jobs, job_id, here) as running:
        assert running.join().state == JobState.SUCCEEDED


def grow_old(jobs: Jobs, job_id: UUID, seconds: int) -> None:
    """The job was submitted `seconds` ago."""
    ago = text("UPDATE jobs SET created_at = created_at - make_interval(secs => :s) WHERE id = :id")
    with jobs.database.write() as session:
        session.execute(ago, {"s": seconds, "id": job_id})
