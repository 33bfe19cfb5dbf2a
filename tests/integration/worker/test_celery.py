"""The whole way of a message: outbox, relay, Redis, Celery, supervisor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from services.db.sessions import Database
from services.embedded.process import processes_in
from services.jobs.states import JobState
from tests.integration.worker.conftest import Jobs

ROOT = Path(__file__).parents[3]


@contextmanager
def process(module: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m MODULE`, ended afterwards."""
    started = subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, env=environment)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


@pytest.fixture
def environment(worker_environment: dict[str, str], database: Database, tmp_path: Path) -> dict[str, str]:
    """The worker's variables, with a scratch folder of the test's own and a short lease."""
    with database.write() as session:
        # Jobs that earlier tests left waiting would be run first.
        session.execute(text("TRUNCATE jobs CASCADE"))
    return {
        **worker_environment,
        "GHOSTED_SCRATCH": str(tmp_path / "scratch"),
        "GHOSTED_LEASE_SECONDS": "4",
        "GHOSTED_HEARTBEAT_SECONDS": "1",
        "GHOSTED_SWEEP_SECONDS": "0.5",
        "GHOSTED_RETRY_DELAY_SECONDS": "1",
    }


@pytest.fixture
def relay(environment: dict[str, str]) -> Iterator[None]:
    """Messages are sent."""
    with process("services.outbox", environment):
        yield


def no_process_in(folder: Path, *, seconds: float = 10) -> bool:
    """Whether no process works in `folder`, at the latest after `seconds`."""
    deadline = time.monotonic() + seconds
    while processes_in(folder.resolve()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_two_jobs_after_each_other(jobs: Jobs, environment: dict[str, str], relay: None) -> None:
    """Jobs that wait are run one after the other by one worker, from message to artifact."""
    first, second = jobs.submit(), jobs.submit(strategy={"name": "explicit", "indices": [1, 4]})
    with process("worker", environment):
        ended = [jobs.wait_ended(job_id, 120) for job_id in (first, second)]
    assert [job.state for job in ended] == [JobState.SUCCEEDED, JobState.SUCCEEDED]
    assert ended[0].finished_at is not None
    assert ended[1].started_at is not None
    assert ended[0].finished_at <= ended[1].started_at


def test_terminated_worker_gives_its_job_back(
    jobs: Jobs, environment: dict[str, str], relay: None, tmp_path: Path
) -> None:
    """SIGTERM ends the worker within seconds; its job goes on with the next worker."""
    job_id = jobs.submit()
    with process("worker", environment) as first:
        jobs.wait(job_id, lambda job: job.stage is not None)
        first.terminate()
        assert first.wait(20) == 0
    assert "worker_shutdown" in [event.payload.get("cause") for event in jobs.events(job_id)]
    assert no_process_in(tmp_path / "scratch", seconds=0)
    with process("worker", environment):
        job = jobs.wait_ended(job_id, 120)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)


def test_killed_worker_takes_its_runner_along(
    jobs: Jobs, environment: dict[str, str], relay: None, tmp_path: Path
) -> None:
    """After SIGKILL of the worker no runner works on, and the job goes on with the next worker."""
    job_id = jobs.submit()
    with process("worker", environment) as first:
        jobs.wait(job_id, lambda job: job.stage is not None)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert no_process_in(tmp_path / "scratch")
    with process("worker", environment):
        job = jobs.wait_ended(job_id, 120)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    assert list((tmp_path / "scratch").iterdir()) == []
