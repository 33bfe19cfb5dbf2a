"""Whatever of a worker is killed, the job goes on or ends, and says why."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from services.jobs.states import JobState
from tests.faults.jobs import Jobs, stand_in
from tests.faults.processes import Processes, descendants, parent, send
from tests.faults.supervised import cancel, seconds_to_end

Figure = Callable[[str, object], None]
LIMIT_BYTES = 600 << 20
NOTICED_SECONDS = 60
CANCELLED_SECONDS = 15
# Moves itself into the group named first, then becomes the program.
ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"


def times_to_notice(jobs: Jobs, job_ids: list[UUID], attempt: int) -> list[float]:
    """Seconds, from now, until the service knows of each job that `attempt` is over."""
    begun = time.monotonic()
    noticed: dict[UUID, float] = {}
    while len(noticed) < len(job_ids):
        assert time.monotonic() < begun + 240
        for job_id in set(job_ids) - set(noticed):
            job = jobs.read(job_id)
            if job.attempt > attempt or job.state != JobState.RUNNING:
                noticed[job_id] = time.monotonic() - begun
        time.sleep(0.1)
    return [noticed[job_id] for job_id in job_ids]


def begun(processes: Processes, jobs: Jobs, job_id: UUID, behaviour: str, attempt: int) -> int:
    """The number of the process that works on this attempt, once the service knows of it."""
    jobs.wait(job_id, lambda job: job.attempt == attempt and job.stage)
    return processes.runner_of(behaviour)


def test_killed_supervisor_worker_and_runner(processes: Processes, jobs: Jobs, figure: Figure) -> None:
    """A killed supervisor, and a killed worker with all that it started, are noticed within 60 s.

    Production values. Their jobs go on with the same worker or another; one whose process is killed again
    and again ends as `worker_lost` after three attempts: a job that kills its workers stops.
    """
    processes.relay()
    workers = [processes.worker(), processes.worker()]
    poison, other = jobs.submit(stand_in("wait600")), jobs.submit(stand_in("wait601"))
    runners = [begun(processes, jobs, poison, "wait600", 1), begun(processes, jobs, other, "wait601", 1)]
    hit = next(worker for worker in workers if runners[1] in descendants(worker.popen.pid))
    os.kill(parent(runners[0]), signal.SIGKILL)
    hit.kill_tree()
    noticed = times_to_notice(jobs, [poison, other], 1)
    assert not [runner for runner in runners if Path(f"/proc/{runner}").exists()]
    processes.worker()
    for attempt in (2, 3):
        os.kill(begun(processes, jobs, poison, "wait600", attempt), signal.SIGKILL)
        noticed += times_to_notice(jobs, [poison], attempt)
    begun(processes, jobs, other, "wait601", 2)
    job = jobs.wait_ended(poison)
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert (job.failure["code"], job.failure["attempt"]) == ("worker_lost", 3)
    assert jobs.types(poison).count("claimed") == 3
    assert max(noticed) < NOTICED_SECONDS
    for name, seconds in zip(("supervisor", "whole worker", "runner"), noticed, strict=False):
        figure(f"seconds to notice the killed {name}", seconds)


def test_cancelled_job_of_a_killed_worker(processes: Processes, jobs: Jobs, figure: Figure) -> None:
    """A job whose worker is gone with all it started is cancelled within 15 s, not when its lease runs out.

    Production values.
    """
    processes.relay()
    worker = processes.worker()
    job_id = jobs.submit(stand_in("wait600"))
    begun(processes, jobs, job_id, "wait600", 1)
    worker.kill_tree()
    cancel(jobs.database, job_id)
    ended = jobs.wait_ended(job_id)
    assert ended.state == JobState.CANCELLED
    assert seconds_to_end(ended) < CANCELLED_SECONDS
    figure("seconds to cancel", seconds_to_end(ended))


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of at most 600 MiB, made for this test."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"ghosted-faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(LIMIT_BYTES))
        except OSError:
            group.rmdir()
            continue
        yield group
        remove(group)
        return
    pytest.skip("this machine lets nobody here make a control group with a limit of memory")


def remove(group: Path) -> None:
    """The group is gone; the kernel lets go of it once its processes are."""
    for pid in (group / "cgroup.procs").read_text().split():
        send(int(pid), signal.SIGKILL)
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def test_killed_for_memory(processes: Processes, jobs: Jobs, limited: Path, figure: Figure) -> None:
    """A real kill by the kernel for want of memory fails the job at once as `out_of_memory`, with advice.

    Production values. The worker, whose group it is, lives on and takes the next job; a kill by hand in
    the same group stays what it is.
    """
    processes.relay(max_attempts=1)
    enter = (sys.executable, "-c", ENTER, str(limited / "cgroup.procs"))
    worker = processes.worker(prefix=enter, max_attempts=1)
    hungry = jobs.submit(stand_in("eat2000"))
    job = jobs.wait_ended(hungry)
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert job.failure is not None
    assert (job.failure["code"], job.failure["retryable"]) == ("out_of_memory", False)
    assert "0.6 GiB" in job.failure["message"]
    assert job.failure["advice"]
    by_hand = jobs.submit(stand_in("wait600"))
    os.kill(worker.runner(), signal.SIGKILL)
    failure = jobs.wait_ended(by_hand).failure
    assert failure is not None
    assert failure["code"] == "worker_lost"
    modest = jobs.submit()
    jobs.wait_ended(modest)
    jobs.check_whole([modest])
    figure("told apart in one group", "out_of_memory, worker_lost")
