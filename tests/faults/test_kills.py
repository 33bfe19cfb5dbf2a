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
from tests.faults.processes import Processes, send

Figure = Callable[[str, object], None]
Wait = Callable[..., None]
LIMIT_BYTES = 600 << 20
NOTICED_SECONDS = 60
# Moves itself into the group named first, then becomes the program.
ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"


def time_to_notice(jobs: Jobs, job_id: UUID, attempt: int) -> float:
    """Seconds, from now, until the service knows that `attempt` is over."""
    begun = time.monotonic()
    jobs.wait(job_id, lambda job: job.attempt > attempt or job.state != JobState.RUNNING)
    return time.monotonic() - begun


def test_killed_three_times(processes: Processes, jobs: Jobs, wait_until: Wait, figure: Figure) -> None:
    """Killed supervisor, killed worker with all that it started, killed runner: each is noticed within 60 s.

    Production values. The first is retried by the same worker, the second by another one; the third was
    the last allowed and ends the job as `worker_lost`: a job that kills its workers stops.
    """
    processes.relay()
    worker = processes.worker()
    job_id = jobs.submit(stand_in("wait600"))
    runner = worker.runner()
    os.kill(worker.supervisor(), signal.SIGKILL)
    noticed = [time_to_notice(jobs, job_id, 1)]
    assert not Path(f"/proc/{runner}").exists()

    jobs.wait(job_id, lambda job: job.attempt == 2 and job.stage)
    worker.runner()
    worker.kill_tree()
    other = processes.worker()
    noticed.append(time_to_notice(jobs, job_id, 2))

    jobs.wait(job_id, lambda job: job.attempt == 3 and job.stage)
    os.kill(other.runner(), signal.SIGKILL)
    noticed.append(time_to_notice(jobs, job_id, 3))
    job = jobs.wait_ended(job_id)
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert (job.failure["code"], job.failure["attempt"]) == ("worker_lost", 3)
    assert jobs.types(job_id).count("claimed") == 3
    assert max(noticed) < NOTICED_SECONDS
    assert jobs.objects(job_id) == {}
    for name, seconds in zip(("supervisor", "whole worker", "runner"), noticed, strict=True):
        figure(f"seconds to notice the killed {name}", seconds)


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
