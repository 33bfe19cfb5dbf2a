"""What has had its time goes, and one process sees to that."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from services.artifacts import retention
from services.artifacts.manifest import attempt_prefix, job_prefix
from services.artifacts.retention import MOST_FAILURES, delete_dead
from services.artifacts.storage import ArtifactStore, open_store
from services.db.sessions import Database, open_engine
from services.jobs.states import JobState
from services.outbox.leadership import LEADER_LOCK
from tests.faults.jobs import Jobs
from tests.faults.processes import Process, Processes
from tests.faults.s3_proxy import DENIED, Delay, Proxy, Refuse, before
from tests.faults.supervised import cancel
from worker.config import WorkerSettings
from worker.scratch import PREFIX, open_scratch

Figure = Callable[[str, object], None]
Wait = Callable[..., None]
SWEEP_SECONDS = 0.5
LEADING = text("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = :key AND granted")


def leaders(database: Database) -> list[int]:
    """The database's processes that serve whoever sweeps."""
    with database.read() as session:
        return list(session.scalars(LEADING, {"key": LEADER_LOCK}))


def says_it_leads(relay: Process) -> bool:
    return relay.says("this process is the one that sweeps")


def lose_a_job(jobs: Jobs, database: Database) -> float:
    """Seconds until a job whose lease has run out is queued again."""
    job_id = jobs.submit()
    with database.write() as session:
        session.execute(
            text(
                "UPDATE jobs SET state = 'running', attempt = 1, lease_token = gen_random_uuid(),"
                " lease_expires_at = now(), started_at = now() WHERE id = :id"
            ),
            {"id": job_id},
        )
    begun = time.monotonic()
    jobs.wait(job_id, lambda job: job.state == JobState.QUEUED)
    return time.monotonic() - begun


def test_one_of_two_sweeps_and_the_other_takes_over(
    processes: Processes, jobs: Jobs, database: Database, wait_until: Wait, figure: Figure
) -> None:
    """Of two relays one holds the leader's lock; killed outright, the other has it within a sweep or two.

    Production values.
    """
    relays = [processes.relay(), processes.relay()]
    wait_until(lambda: any(map(says_it_leads, relays)))
    lose_a_job(jobs, database)
    assert [says_it_leads(relay) for relay in relays].count(True) == 1
    (before,) = leaders(database)
    (leader,) = (relay for relay in relays if says_it_leads(relay))
    (other,) = (relay for relay in relays if relay is not leader)
    leader.kill()
    begun = time.monotonic()
    wait_until(lambda: says_it_leads(other))
    figure("seconds until the other one sweeps (a sweep is 5 s)", time.monotonic() - begun)
    (after,) = leaders(database)
    assert after != before
    figure("seconds until a lost job is queued again", lose_a_job(jobs, database))


def test_a_leader_that_the_database_cut_off_is_replaced(
    processes: Processes, jobs: Jobs, database: Database, wait_until: Wait
) -> None:
    """A leader whose session ended notices and sweeps no more, unless it gets the lock again."""
    relay = processes.relay(sweep_seconds=SWEEP_SECONDS)
    wait_until(lambda: leaders(database))
    (before,) = leaders(database)
    with database.write() as session:
        session.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": before})
    wait_until(lambda: leaders(database) not in ([], [before]))
    assert relay.says("no longer sweeps")
    lose_a_job(jobs, database)


def test_what_nobody_can_reach_is_deleted(
    processes: Processes, jobs: Jobs, database: Database, store: ArtifactStore, wait_until: Wait
) -> None:
    """Of an artifact past its time no object is left, nor anything of dead attempts, nor a half upload."""
    processes.relay(sweep_seconds=SWEEP_SECONDS)
    processes.worker()
    job_id = jobs.submit()
    jobs.wait_ended(job_id)
    jobs.check_whole([job_id])
    dead = attempt_prefix(job_id, 7)
    store.client.put_object(Bucket=store.bucket, Key=dead + "late", Body=b"x")
    store.client.create_multipart_upload(Bucket=store.bucket, Key=dead + "half")
    with database.write() as session:
        session.execute(text("UPDATE jobs SET finished_at = finished_at - interval '1 day'"))
        session.execute(text("UPDATE artifacts SET expires_at = now()"))
    wait_until(lambda: not jobs.objects(job_id))

    def half_uploads() -> list[object]:
        listed = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=f"jobs/{job_id}/")
        return list(listed.get("Uploads", []))

    wait_until(lambda: not half_uploads())
    artifact = jobs.artifact(job_id)
    assert artifact is not None
    assert artifact.objects_deleted_at is not None


@pytest.fixture
def proxy(settings: WorkerSettings) -> Iterator[Proxy]:
    """A proxy before the store, without faults as yet."""
    with before(settings.s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def through(settings: WorkerSettings, proxy: Proxy) -> ArtifactStore:
    """The store as it is seen through the proxy."""
    return open_store(settings.model_copy(update={"s3_endpoint": proxy.address}))


def end_jobs(jobs: Jobs, number: int) -> list[UUID]:
    """Jobs that ended yesterday, and left an object each."""
    ended = [cancel(jobs.database, jobs.submit()).id for _ in range(number)]
    for job_id in ended:
        key = attempt_prefix(job_id, 1) + "left"
        jobs.store.client.put_object(Bucket=jobs.store.bucket, Key=key, Body=b"x")
    with jobs.database.write() as session:
        session.execute(text("UPDATE jobs SET finished_at = now() - interval '1 day'"))
    return ended


def unswept(jobs: Jobs, job_ids: list[UUID]) -> list[UUID]:
    """The jobs whose objects are not known to be gone."""
    return [job_id for job_id in job_ids if jobs.read(job_id).objects_swept_at is None]


def test_what_the_store_refuses_keeps_nothing_else(jobs: Jobs, through: ArtifactStore, proxy: Proxy) -> None:
    """Jobs whose objects cannot be deleted, more than a round bears, do not keep others' from going."""
    ended = end_jobs(jobs, MOST_FAILURES + 3)
    refused, others = ended[: MOST_FAILURES + 1], ended[MOST_FAILURES + 1 :]
    prefixes = {job_prefix(job_id) for job_id in refused}
    proxy.plan = lambda asked: Refuse(403, DENIED) if asked.query.get("prefix") in prefixes else None
    for _ in range(100):
        with jobs.database.write() as session:
            delete_dead(session, through, grace_seconds=0)
        if len(unswept(jobs, ended)) == len(refused):
            break
    assert unswept(jobs, ended) == refused
    assert [jobs.objects(job_id) for job_id in others] == [{}, {}]


def test_a_slow_store_is_swept_in_the_end(
    jobs: Jobs, settings: WorkerSettings, through: ArtifactStore, proxy: Proxy
) -> None:
    """A round that takes longer than a transaction may be silent is committed all the same."""
    ended = end_jobs(jobs, 8)
    silent_seconds = 3
    url = settings.database_url.get_secret_value()
    database = Database(open_engine(url, statement_timeout_seconds=silent_seconds))
    proxy.plan = lambda _: Delay(0.2)
    begun = time.monotonic()
    with database.write() as session:
        delete_dead(session, through, grace_seconds=0)
    assert time.monotonic() - begun > silent_seconds
    database.close()
    assert len(unswept(jobs, ended)) < len(ended)


def test_a_round_ends_in_time(jobs: Jobs, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round whose time is over ends and notes what it has done; the next one goes on."""
    ended = end_jobs(jobs, 3)
    monkeypatch.setattr(retention, "MOST_SECONDS", 0)
    for left in (2, 1, 0):
        with jobs.database.write() as session:
            assert delete_dead(session, store, grace_seconds=0) == 1
        assert len(unswept(jobs, ended)) == left


def test_a_worker_tidies_its_machine(processes: Processes, tmp_path: Path, wait_until: Wait) -> None:
    """Models unused for long and folders of killed workers go without a job; what is in use stays."""
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    old, new = (cache / "hub" / f"models--owner--{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"x" * 4096)
    then = time.time() - 31 * 86400
    for path in (old / "weights", old):
        os.utime(path, (then, then))
    abandoned = scratch / f"{PREFIX}abandoned"
    abandoned.mkdir(parents=True)
    with open_scratch(scratch) as used:
        abandoned.mkdir(exist_ok=True)
        processes.worker(cache=cache, scratch=scratch, tidy_seconds=0.5)
        wait_until(lambda: not old.exists() and not abandoned.exists())
        assert new.is_dir()
        assert used.folder.is_dir()
