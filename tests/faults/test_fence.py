"""One live executor per attempt; one that comes late cannot write."""

import signal
import time
from collections.abc import Callable
from uuid import UUID

from services.artifacts.manifest import attempt_prefix
from services.jobs.states import JobState
from tests.faults.jobs import Jobs, stand_in
from tests.faults.parts import Parts
from tests.faults.processes import Processes, descendants, send
from tests.faults.supervised import unfinished

Figure = Callable[[str, object], None]
Wait = Callable[..., None]
# Leases of seconds; a sweeper removes what a dead attempt left after four of them.
SHORT = {"lease_seconds": 3, "heartbeat_seconds": 1, "sweep_seconds": 0.5, "retry_delay_seconds": 1}


def test_late_runner_and_supervisor(
    processes: Processes, jobs: Jobs, wait_until: Wait, figure: Figure
) -> None:
    """Runner and supervisor stopped past the lease and let go after the successor's success write nothing.

    Short lease and sweep.
    """
    processes.relay(**SHORT)
    first = processes.worker(**SHORT)
    job_id = jobs.submit(stand_in("wait2"))
    runner = first.runner()
    supervisor = first.supervisor()
    for pid in (runner, supervisor):
        send(pid, signal.SIGSTOP)
    second = processes.worker(**SHORT)
    job = jobs.wait_ended(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    story = jobs.types(job_id)
    for pid in (runner, supervisor):
        send(pid, signal.SIGCONT)
    wait_until(lambda: first.says("attempt 1 lost its lease"))
    wait_until(lambda: not list(first.scratch.glob("ghosted-job-*")))
    assert jobs.types(job_id) == story
    jobs.check_whole([job_id])
    assert all(key.startswith(attempt_prefix(job_id, 2)) for key in jobs.objects(job_id))
    assert second.popen.poll() is None
    figure("late writes taken", len(jobs.types(job_id)) - len(story))


def test_late_upload(processes: Processes, jobs: Jobs, wait_until: Wait, figure: Figure) -> None:
    """Supervisor and carrier stopped amid an upload, and let go after the sweeper was there, leave no object.

    Short lease and sweep.
    """
    processes.relay(**SHORT)
    first = processes.worker(**SHORT)
    job_id = jobs.submit(stand_in("wait1.files400"))
    supervisor = first.supervisor()
    wait_until(lambda: of_attempt(jobs, job_id, 1))
    stopped = [supervisor, *descendants(supervisor)]
    for pid in stopped:
        send(pid, signal.SIGSTOP)
    sent = len(of_attempt(jobs, job_id, 1))
    assert jobs.read(job_id).stage == "upload"
    processes.worker(**SHORT)
    assert jobs.wait_ended(job_id).attempt == 2
    jobs.check_whole([job_id])
    story = jobs.types(job_id)
    wait_until(lambda: jobs.read(job_id).objects_swept_at)
    assert of_attempt(jobs, job_id, 1) == []
    for pid in reversed(stopped):
        if pid == supervisor:
            # The carrier goes on first: there really are late objects.
            wait_until(lambda: of_attempt(jobs, job_id, 1))
        send(pid, signal.SIGCONT)
    wait_until(lambda: first.says("attempt 1 lost its lease"))
    wait_until(lambda: not list(first.scratch.glob("ghosted-job-*")))
    wait_until(lambda: of_attempt(jobs, job_id, 1) == [])
    assert unfinished(jobs.store, job_id) == []
    assert jobs.types(job_id) == story
    jobs.check_whole([job_id])
    figure("objects swept before they were let go", sent)


def test_silent_database(
    processes: Processes, jobs: Jobs, parts: Parts, wait_until: Wait, figure: Figure
) -> None:
    """While the database neither answers nor hangs up, an attempt ends with its lease all the same.

    Short lease and sweep. When the database is back, the job goes on.
    """
    processes.relay(**SHORT)
    worker = processes.worker(**SHORT)
    job_id = jobs.submit(stand_in("still8"))
    runner = worker.runner()
    jobs.wait(job_id, lambda job: job.stage)
    parts.postgres.freeze()
    frozen = time.monotonic()
    try:
        wait_until(lambda: worker.says("stopping the attempt: lease_lost"), seconds=30)
        ended = time.monotonic() - frozen
        wait_until(lambda: not is_alive(runner), seconds=30)
    finally:
        parts.postgres.thaw()
    job = jobs.wait_ended(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    jobs.check_whole([job_id])
    figure("seconds of silence until the attempt ended (lease 3)", ended)


def of_attempt(jobs: Jobs, job_id: UUID, attempt: int) -> list[str]:
    """The objects of one attempt."""
    return [key for key in jobs.objects(job_id) if key.startswith(attempt_prefix(job_id, attempt))]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, one that has ended and is not yet waited for apart."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
