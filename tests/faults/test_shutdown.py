"""A worker that is told to end gives its job back at once, and leaves nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from services.db.sessions import WriteSession
from services.embedded.process import processes_in
from services.errors import WorkerLostError
from services.jobs import attempts
from services.jobs.excuses import GIVEN_BACK, MOST_EXCUSED
from services.jobs.failures import RetryPolicy, failure_of
from services.jobs.states import JobState
from services.telemetry import NoTracing
from tests.faults.jobs import Jobs
from tests.faults.processes import Processes
from tests.faults.s3_proxy import Asked, Hang, Proxy, before
from tests.faults.supervised import soon, staged, supervising, unfinished
from worker.config import WorkerSettings
from worker.ending import conclude_stopped
from worker.errors import StopReason
from worker.ledger import Ledger
from worker.stages import StageSpans

# docker-compose.yml gives two minutes; a quarter of it is for machines that are busy.
MOST_SECONDS = 30
Figure = Callable[[str, object], None]


@pytest.fixture
def proxy(settings: WorkerSettings) -> Iterator[Proxy]:
    """A proxy before the store, without faults as yet."""
    with before(settings.s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def here(settings: WorkerSettings, tmp_path: Path) -> WorkerSettings:
    """A worker with a scratch folder of the test's own."""
    return settings.model_copy(update={"scratch": tmp_path / "scratch"})


@pytest.mark.parametrize("stage", ["score", "upload"])
def test_terminated_worker(
    jobs: Jobs, processes: Processes, proxy: Proxy, stage: str, figure: Figure
) -> None:
    """SIGTERM ends a worker well within its grace; the job is queued again, with the cause in its event."""
    proxy.plan = hang_once("part")
    processes.relay()
    worker = processes.start("tests.faults.staged_worker", s3_endpoint=proxy.address, s3_part_bytes=5 * 2**20)
    job_id = jobs.submit(staged("mib12", stage))
    if stage == "upload":
        assert proxy.hanging.wait(120)
    jobs.wait(job_id, lambda job: job.stage == stage)
    before = time.monotonic()
    assert worker.terminate(MOST_SECONDS) == 0
    figure("seconds to end", time.monotonic() - before)
    last = jobs.events(job_id)[-1]
    assert (last.type, last.payload["cause"]) == ("requeued", "worker_shutdown")
    assert processes_in(worker.scratch.resolve()) == ()
    assert list(worker.scratch.iterdir()) == []
    assert (jobs.objects(job_id), unfinished(jobs.store, job_id)) == ({}, [])


def hang_once(kind: str) -> Callable[[Asked], Hang | None]:
    """A plan by which the first request of a kind hangs."""
    hung: list[Asked] = []

    def plan(asked: Asked) -> Hang | None:
        if asked.kind != kind or hung:
            return None
        hung.append(asked)
        return Hang()

    return plan


def test_in_verification(jobs: Jobs, here: WorkerSettings) -> None:
    """A result that was uploaded but not verified is deleted; the next attempt makes its own."""
    with supervising(jobs, jobs.submit(staged("verify", "brief3")), here) as running:
        soon(running.is_staying)
        running.shutdown.set()
        assert running.join().state == JobState.QUEUED
    running.check_gone()
    with supervising(jobs, running.job_id, here) as second:
        job = second.join()
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    jobs.check_whole([job.id])


def test_cancelled_job_is_not_given_back(jobs: Jobs, here: WorkerSettings) -> None:
    """A worker that is told to end after the user asked to cancel ends the job as cancelled."""
    blind = here.model_copy(update={"orders_seconds": 3})
    with supervising(jobs, jobs.submit(staged("score")), blind) as running:
        running.reach("score")
        running.cancel()
        running.shutdown.set()
        assert running.join().state == JobState.CANCELLED


@pytest.mark.parametrize("word", ["shutdown", "absence"])
def test_a_process_cannot_excuse_itself(jobs: Jobs, here: WorkerSettings, word: str) -> None:
    """A job's process that names a cause which does not count as a lost attempt has failed for good."""
    with supervising(jobs, jobs.submit(staged(word)), here) as running:
        job = running.join()
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert job.failure["code"] == "internal"


def test_is_no_lost_attempt(jobs: Jobs) -> None:
    """Of five attempts four were given back: the fifth is the first that is lost."""
    job_id = jobs.submit()
    for _ in range(4):
        give_back(jobs, job_id)
    assert lose(jobs, job_id) == (JobState.QUEUED, 5)
    assert jobs.events(job_id)[-1].payload == {"cause": "worker_lost", "delay_seconds": 5.0}
    assert lose(jobs, job_id) == (JobState.QUEUED, 6)
    assert lose(jobs, job_id) == (JobState.FAILED, 7)


def test_excuses_are_not_endless(jobs: Jobs, here: WorkerSettings, tmp_path: Path) -> None:
    """Given back as often as is excused, a job that brings its workers down has the usual tries left."""
    job_id = jobs.submit()
    for _ in range(MOST_EXCUSED + here.max_attempts):
        assert jobs.read(job_id).state == JobState.QUEUED
        shut_down(jobs, job_id, here, tmp_path)
    job = jobs.read(job_id)
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert job.failure["code"] == "worker_lost"
    causes = [event.payload["cause"] for event in jobs.events(job_id) if event.type == "requeued"]
    assert causes == [GIVEN_BACK] * MOST_EXCUSED + ["worker_lost"] * (here.max_attempts - 1)


def test_absences_of_the_database_are_excuses_too(jobs: Jobs) -> None:
    """After as many excused attempts as there may be, one that the database ended counts."""
    job_id = jobs.submit()
    for _ in range(MOST_EXCUSED):
        give_back(jobs, job_id)
    causes = []
    for _ in range(2):
        assert lose(jobs, job_id, excused=True)[0] == JobState.QUEUED
        causes.append(jobs.events(job_id)[-1].payload["cause"])
    assert causes == ["worker_lost"] * 2
    assert lose(jobs, job_id, excused=True)[0] == JobState.FAILED


def shut_down(jobs: Jobs, job_id: UUID, settings: WorkerSettings, folder: Path) -> None:
    """A worker claims the job, and ends its attempt as one that is told to end."""
    with jobs.database.write() as session:
        fence = claimed(session, job_id)
    ledger = Ledger(jobs.database, fence, folder, StageSpans(NoTracing()))
    conclude_stopped(ledger, StopReason.SHUTDOWN, settings)


def claimed(session: WriteSession, job_id: UUID) -> attempts.Fence:
    """A worker's right to the job."""
    found = attempts.claim(session, job_id, lease_seconds=60, worker="test")
    assert found is not None
    return found.fence


def give_back(jobs: Jobs, job_id: UUID) -> None:
    """A worker claims the job, and is told to end."""
    with jobs.database.write() as session:
        fence = claimed(session, job_id)
        attempts.requeue(session, fence, cause=GIVEN_BACK, delay_seconds=0)


def lose(jobs: Jobs, job_id: UUID, *, excused: bool = False) -> tuple[str, int]:
    """A worker claims the job and dies; the job's state and attempt then."""
    lost = failure_of(WorkerLostError("gone"))
    with jobs.database.write() as session:
        fence = claimed(session, job_id)
        attempts.end_lost_attempt(session, fence, lost, RetryPolicy(3, 5), excused=excused)
    job = jobs.read(job_id)
    return job.state, job.attempt
