"""An accepted job reaches a final state without an operator, whatever part fails on its way to a worker."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx2
from redis import Redis

from services.jobs.rows import RUN_JOB
from services.jobs.states import ACTIVE_STATES, JobState
from services.outbox.publisher import QUEUE, open_publisher
from tests.faults.jobs import Jobs, stand_in
from tests.faults.parts import Parts
from tests.faults.processes import Processes
from worker.config import WorkerSettings

Figure = Callable[[str, object], None]
Wait = Callable[..., None]
MINUTE = 60.0


def keep_posting(url: str) -> list[UUID]:
    """Submit jobs until the API is gone; those that it accepted."""
    accepted: list[UUID] = []
    body = {"model": "stand-in/quick", "layers": 2}
    with contextlib.suppress(httpx2.TransportError), httpx2.Client(base_url=url, timeout=20) as client:
        while True:
            answer = client.post("/v1/jobs", json=body)
            assert answer.status_code == 202, answer.text
            accepted.append(UUID(answer.json()["id"]))
    return accepted


def answers(url: str) -> bool:
    """Whether the API is there."""
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(url + "/healthz", timeout=5).status_code == 200
    return False


def test_api_killed_between_commit_and_publish(
    processes: Processes, jobs: Jobs, wait_until: Wait, figure: Figure
) -> None:
    """Jobs whose API is killed before anything was published end all the same, with a worker that comes late.

    Production values. No relay runs while the jobs are taken, so the kill comes after each commit and
    before each publication.
    """
    api, url = processes.api()
    wait_until(lambda: answers(url))
    with ThreadPoolExecutor(2) as pool:
        posting = [pool.submit(keep_posting, url) for _ in range(2)]
        wait_until(lambda: jobs.count(JobState.QUEUED) >= 6)
        api.kill()
        accepted = [job_id for done in posting for job_id in done.result()]
    processes.relay()
    processes.worker()
    wait_until(lambda: jobs.count(*ACTIVE_STATES) == 0)
    jobs.check_whole(accepted)
    assert jobs.count(JobState.SUCCEEDED) == jobs.count(*JobState)
    figure("jobs accepted, all ended", len(accepted))


def test_message_lost_in_the_broker(
    processes: Processes, jobs: Jobs, settings: WorkerSettings, wait_until: Wait, figure: Figure
) -> None:
    """FLUSHALL after the message was sent: it is sent again, to a worker that was connected all the time.

    Production values, but that a wake-up is sent again after 3 s instead of 60 s.
    """
    processes.relay(republish_seconds=3, sweep_seconds=1)
    worker = processes.worker()
    first = jobs.submit(stand_in("wait3"))
    worker.runner()
    second = jobs.submit()
    with Redis.from_url(settings.redis_url.get_secret_value()) as broker:
        wait_until(lambda: broker.llen("ghosted") == 1)
        broker.flushall()
    flushed = time.monotonic()
    jobs.wait_ended(second)
    jobs.check_whole([first, second])
    figure("seconds from FLUSHALL to the end", time.monotonic() - flushed)


def test_broker_away_for_a_minute(
    processes: Processes, jobs: Jobs, parts: Parts, settings: WorkerSettings, wait_until: Wait, figure: Figure
) -> None:
    """Redis is gone for 60 s: a job that runs ends meanwhile, one that comes meanwhile ends afterwards.

    Production values. Relay and worker are the same processes before and after.
    """
    relay, worker = processes.relay(), processes.worker()
    before = jobs.submit(stand_in("wait2"))
    worker.runner()
    parts.redis.stop()
    stopped = time.monotonic()
    meanwhile = jobs.submit()
    jobs.wait_ended(before)
    time.sleep(max(0.0, stopped + MINUTE - time.monotonic()))
    assert jobs.read(meanwhile).state == JobState.QUEUED
    parts.redis.start()
    back = time.monotonic()
    jobs.wait_ended(meanwhile)
    jobs.check_whole([before, meanwhile])
    assert relay.popen.poll() is None
    assert worker.popen.poll() is None
    figure("seconds from the return to the end", time.monotonic() - back)


def test_relay_killed(processes: Processes, jobs: Jobs, wait_until: Wait, figure: Figure) -> None:
    """One of two relays is killed while jobs come in: the other one sends what is left, nothing twice.

    Production values.
    """
    first, _ = processes.relay(), processes.relay()
    processes.worker()
    job_ids = [jobs.submit() for _ in range(5)]
    first.kill()
    job_ids += [jobs.submit() for _ in range(5)]
    wait_until(lambda: jobs.count(*ACTIVE_STATES) == 0)
    jobs.check_whole(job_ids)
    figure("jobs ended", len(job_ids))


def test_message_delivered_five_times(
    processes: Processes, jobs: Jobs, settings: WorkerSettings, wait_until: Wait, figure: Figure
) -> None:
    """Of five deliveries to two workers one begins an attempt; the others do nothing, early and late.

    Production values. No relay runs: the test sends the messages itself.
    """
    workers = [processes.worker(), processes.worker()]
    job_id = jobs.submit(stand_in("wait2"))
    with open_publisher(settings.redis_url.get_secret_value()) as publish:
        for _ in range(4):
            publish(RUN_JOB, job_id, QUEUE)
        jobs.wait_ended(job_id)
        publish(RUN_JOB, job_id, QUEUE)
    refused = f"job {job_id} is not to be had"
    wait_until(lambda: sum(one.log.read_text(errors="replace").count(refused) for one in workers) == 4)
    jobs.check_whole([job_id])
    assert jobs.read(job_id).attempt == 1
    figure("deliveries, of which one claimed", 5)
