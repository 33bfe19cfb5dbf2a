"""Workers are seen for what they are, take what they can hold, and do not stand still."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import make_url, text

from services.db.sessions import Database
from services.jobs import repository
from services.jobs.repository import NewJob
from services.jobs.rows import add_wake_up
from services.jobs.states import JobState
from services.workers.needs import Needs
from services.workers.repository import Seen, list_workers
from services.workers.waiting import waiting_reasons
from tests.faults.jobs import Jobs, stand_in
from tests.faults.processes import Process, Processes, descendants
from tests.faults.proxy import Proxy, proxy_to
from tests.unit.worker.test_machine import script
from worker.__main__ import STUCK
from worker.config import WorkerSettings

Figure = Callable[[str, object], None]
Wait = Callable[..., None]
# Short, but not shorter than a busy machine may need to follow a wake-up.
PATIENT = {"heartbeat_seconds": 0.5, "watchdog_seconds": 8}


@pytest.fixture(autouse=True)
def _nobody_else(database: Database) -> None:
    """The list of workers is empty when a test begins."""
    with database.write() as session:
        session.execute(text("TRUNCATE workers"))


def seen(database: Database) -> list[Seen]:
    """All workers in the list."""
    with database.read() as session:
        return list(list_workers(session, lease_seconds=30))


def only(database: Database) -> Seen | None:
    """The one worker in the list, if there is one."""
    found = seen(database)
    assert len(found) < 2
    return found[0] if found else None


def submit(database: Database, needs: Needs) -> UUID:
    """A queued job that says what it needs."""
    with database.write() as session:
        job = repository.add(session, NewJob(stand_in(), 600, needs=needs))
        add_wake_up(session, job)
        return job.id


def is_gone(pids: list[int]) -> bool:
    """Whether none of the processes is there."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_worker_is_seen_from_start_to_end(
    processes: Processes, jobs: Jobs, database: Database, wait_until: Wait, figure: Figure
) -> None:
    """It is in the list soon after its start, also while it works, with the job; after SIGTERM it is not.

    Production values.
    """
    begun = time.monotonic()
    worker = processes.worker()
    processes.relay()
    wait_until(lambda: only(database))
    figure("seconds from start to list", time.monotonic() - begun)
    job_id = jobs.submit(stand_in("wait600"))
    wait_until(lambda: (found := only(database)) and found.job is not None)
    beats: set[datetime] = set()

    def beaten_twice() -> bool:
        found = only(database)
        assert found is not None
        assert found.live
        assert found.job is not None
        assert (found.job.id, found.job.attempt) == (job_id, 1)
        assert found.worker.pid == worker.popen.pid
        beats.add(found.worker.last_seen_at)
        return len(beats) == 3

    wait_until(beaten_twice)
    assert worker.terminate() == 0
    assert seen(database) == []
    assert jobs.read(job_id).state == JobState.QUEUED


@pytest.mark.parametrize("victim", ["first", "consumer"])
def test_no_part_of_a_worker_outlives_the_others(
    processes: Processes, jobs: Jobs, wait_until: Wait, victim: str
) -> None:
    """Killed outright, the first process takes the one with the job along, and the other way round."""
    worker = processes.worker()
    processes.relay()
    job_id = jobs.submit(stand_in("wait600"))
    worker.runner()
    tree = descendants(worker.popen.pid)
    os.kill(worker.popen.pid if victim == "first" else tree[0], signal.SIGKILL)
    assert worker.popen.wait(60) == (-signal.SIGKILL if victim == "first" else 128 + signal.SIGKILL)
    wait_until(lambda: is_gone(tree))
    jobs.wait(job_id, lambda job: job.state == JobState.QUEUED)


@pytest.fixture
def proxy(settings: WorkerSettings) -> Iterator[Proxy]:
    """A way to Redis that can be frozen."""
    url = make_url(settings.redis_url.get_secret_value())
    with proxy_to(url.host or "", url.port or 0) as made:
        yield made


def through(proxy: Proxy, settings: WorkerSettings) -> str:
    """The address of Redis by way of the proxy."""
    url = make_url(settings.redis_url.get_secret_value())
    return url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)


def test_a_worker_that_stands_still_ends(
    processes: Processes, jobs: Jobs, settings: WorkerSettings, proxy: Proxy, figure: Figure, wait_until: Wait
) -> None:
    """A worker whose connection to the broker died unnoticed ends with a code that is not 0.

    At 3 s instead of 120 s. Nothing of it is left, and the next worker takes the job as its first attempt.
    """
    worker = processes.worker(redis_url=through(proxy, settings), heartbeat_seconds=0.5, watchdog_seconds=3)
    wait_until(lambda: only(jobs.database))
    tree = descendants(worker.popen.pid)
    proxy.freeze()
    begun = time.monotonic()
    processes.relay(republish_seconds=2)
    job_id = jobs.submit()
    assert worker.popen.wait(120) == STUCK
    figure("seconds until the stuck worker ended (watchdog 3 s)", time.monotonic() - begun)
    wait_until(lambda: is_gone(tree), seconds=10)
    assert not (processes.folder / "ready-0").exists()
    assert jobs.read(job_id).attempt == 0
    processes.worker()
    jobs.wait_ended(job_id)
    jobs.check_whole([job_id])


def test_a_worker_without_work_does_not_end(
    processes: Processes, jobs: Jobs, database: Database, wait_until: Wait
) -> None:
    """Jobs too large for a worker make it neither end nor stop; they stay as they are, and say why.

    One is of a class that it does not listen to, the other one is offered to it again and again.
    """
    worker = processes.worker(**PATIENT)
    processes.relay()
    large = [submit(database, Needs(memory_bytes=1 << 50)), submit(database, Needs(disk_bytes=1 << 50))]
    begun = time.monotonic()
    wait_until(lambda: worker.says(f"{large[1]} is not taken: it needs 1048576.0 GiB of disk"))
    wait_until(lambda: sends(database, large[1]) >= 2 and time.monotonic() > begun + 12)
    assert worker.popen.poll() is None
    waiting = [jobs.read(job_id) for job_id in large]
    for job in waiting:
        assert (job.state, job.attempt, job.event_count) == (JobState.QUEUED, 0, 1)
    with database.read() as session:
        reasons = waiting_reasons(session, waiting, lease_seconds=30)
    assert reasons[large[0]].startswith("needs 1048576.0 GiB of memory, the largest live worker has ")
    assert reasons[large[1]].startswith("needs 1048576.0 GiB of disk, of which at most ")
    small = submit(database, Needs(memory_bytes=1, disk_bytes=1))
    jobs.wait_ended(small)
    jobs.check_whole([small])


def sends(database: Database, job_id: UUID) -> int:
    """How often the job's wake-up was sent."""
    with database.read() as session:
        found = session.scalar(text("SELECT sends FROM outbox WHERE job_id = :id"), {"id": job_id})
    return int(found or 0)


def test_a_lost_wake_up_is_no_fault_of_the_worker(
    processes: Processes, jobs: Jobs, database: Database, wait_until: Wait, figure: Figure
) -> None:
    """An idle worker has a wake-up sent again that the broker lost, instead of ending.

    Long before the sweeper would: here that is after an hour.
    """
    job_id = jobs.submit()
    with database.write() as session:
        # As if it had been sent often, and lost each time.
        session.execute(text("UPDATE outbox SET sends = 9, sent_at = now()"))
    processes.relay(republish_seconds=3600)
    begun = time.monotonic()
    worker = processes.worker(**PATIENT)
    jobs.wait_ended(job_id)
    figure("seconds until a lost wake-up was made good (watchdog 8 s)", time.monotonic() - begun)
    assert worker.popen.poll() is None


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH on which nvidia-smi tells of two GPUs."""
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "0, GPU-aa, NVIDIA A, 1000, 900\n1, GPU-bb, NVIDIA B, 2000, 1500")
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


def variables_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def gpu_worker(processes: Processes, path: str, scratch: Path) -> Process:
    """A worker for the second GPU."""
    changed = Processes({**processes.environment, "PATH": path}, processes.folder, processes.started)
    return changed.worker(device="cuda:1", scratch=scratch, heartbeat_seconds=0.5)


def test_one_gpu_a_worker_and_one_job_a_gpu(
    processes: Processes, jobs: Jobs, database: Database, two_gpus: str, tmp_path: Path, wait_until: Wait
) -> None:
    """The job's process alone is told of the worker's one GPU; no other process loads torch.

    A second worker on the same GPU by mistake takes no job while the first one runs one.
    """
    processes.relay()
    first = gpu_worker(processes, two_gpus, tmp_path / "scratch")
    wait_until(lambda: only(database))
    found = only(database)
    assert found is not None
    assert found.worker.devices == [{"kind": "cuda", "name": "NVIDIA B", "memory_bytes": 2000 << 20}]
    assert (found.worker.memory_class, found.worker.free_memory_bytes) == ("small", 1500 << 20)
    running = jobs.submit(stand_in("wait600"))
    runner = Process(first.popen, first.log, tmp_path / "scratch").runner()
    assert variables_of(runner)["CUDA_VISIBLE_DEVICES"] == "1"
    for pid in [first.popen.pid, *descendants(first.popen.pid)]:
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
    assert "CUDA_VISIBLE_DEVICES" not in variables_of(first.popen.pid)
    second = gpu_worker(processes, two_gpus, tmp_path / "scratch")
    waiting = jobs.submit()
    wait_until(lambda: second.says("another worker runs a job on this GPU"))
    assert jobs.read(waiting).attempt == 0
    assert first.terminate() == 0
    with database.write() as session:
        repository.request_cancel(session, repository.Viewer(None), running)
    jobs.wait_ended(waiting)
    jobs.check_whole([waiting])
