"""PostgreSQL restarts again and again, and no job is lost, doubled or told wrongly."""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from services.jobs.states import ACTIVE_STATES
from tests.faults.jobs import Jobs, stand_in
from tests.faults.parts import Parts
from tests.faults.processes import Processes
from tests.jobs import tiny_spec

SMALL_JOBS, WHOLE_JOBS = 200, 20
# So few that no wake-up grows old, so many that no worker idles.
WAITING = 12
LIMIT_SECONDS = 1500
# PostgreSQL's ways to go: in order, at once with recovery afterwards, and killed.
WAYS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

Figure = Callable[[str, object], None]


def test_database_restarts_under_load(
    processes: Processes, jobs: Jobs, parts: Parts, tiny_folder: Path, text_file: Path, figure: Figure
) -> None:
    """All of 200 jobs without torch and 20 whole ones succeed on two workers, while PostgreSQL restarts.

    Production values. A restart comes 5 to 20 s after the former one, in one of three ways by chance.
    Each job has one set of files, its events are numbered without gaps, and none is told twice.
    """
    processes.relay()
    for _ in range(2):
        processes.worker()
    whole = tiny_spec(tiny_folder, text_file, remove=[2, 3])
    specs = [stand_in() if number % 11 else whole for number in range(SMALL_JOBS + WHOLE_JOBS)]
    chance = random.Random(20260515)  # noqa: S311 - not for secrets
    begun = time.monotonic()
    submitted: list[UUID] = []
    restarts = 0
    restart_at = begun + chance.uniform(5, 20)
    while (active := jobs.count(*ACTIVE_STATES)) or specs:
        submitted += [jobs.submit(specs.pop()) for _ in range(min(WAITING - active, len(specs)))]
        if time.monotonic() > restart_at:
            parts.postgres.restart(chance.choice(WAYS))
            restarts += 1
            restart_at = time.monotonic() + chance.uniform(5, 20)
        assert time.monotonic() < begun + LIMIT_SECONDS, (active, len(specs))
        time.sleep(0.5)
    seconds = time.monotonic() - begun
    jobs.check_whole(submitted)
    assert restarts
    figure("jobs that succeeded", len(submitted))
    figure("restarts survived", restarts)
    figure("attempts beyond the first", sum(jobs.read(job_id).attempt - 1 for job_id in submitted))
    figure("seconds", seconds)
