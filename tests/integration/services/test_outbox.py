import base64
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import text, update

from services.artifacts.manifest import attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.models import Artifact, Job, OutboxMessage
from services.db.sessions import Database
from services.errors import BrokerUnavailableError
from services.jobs import attempts, sweeping
from services.jobs.attempts import NewArtifact
from services.jobs.rows import RUN_JOB, seconds
from services.jobs.states import JobState
from services.outbox.leadership import Leader
from services.outbox.loop import run
from services.outbox.publisher import QUEUE, open_publisher
from services.outbox.relay import send_due
from services.outbox.sweeper import deletions, repairs, sweep_jobs, sweep_objects
from tests.integration.services.helpers import claim, environment, read, running, submit


@pytest.fixture
def broker(settings: Settings) -> Iterator["Redis"]:
    """The broker, with an empty queue before and after."""
    with Redis.from_url(settings.redis_url.get_secret_value()) as client:
        client.delete(QUEUE)
        yield client
        client.delete(QUEUE)


def _send(database: Database, sent: list[UUID], limit: int = 100) -> int:
    with database.write() as session:
        return send_due(session, lambda _, job_id, _queue: sent.append(job_id), limit=limit)


def test_the_message_holds_the_id_and_nothing_else(
    database: Database, settings: Settings, broker: "Redis"
) -> None:
    """On the wire: JSON, the task's name, the job's id; no spec, no result backend."""
    job_id = submit(database)
    with open_publisher(settings.redis_url.get_secret_value()) as publish, database.write() as session:
        assert send_due(session, publish) == 1
    (raw,) = broker.lrange(QUEUE, 0, -1)
    message = json.loads(raw)
    arguments, named, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, named) == ([], {"job_id": str(job_id)})
    assert message["content-type"] == "application/json"
    assert (message["headers"]["task"], message["headers"]["ignore_result"]) == (RUN_JOB, True)


def test_each_message_is_sent_once(database: Database) -> None:
    """What was marked as sent is not sent again."""
    job_id = submit(database)
    sent: list[UUID] = []
    assert [_send(database, sent), _send(database, sent)] == [1, 0]
    assert sent == [job_id]


def test_two_relays_share_the_work(database: Database) -> None:
    """Relays at the same time take different rows."""
    made = {submit(database) for _ in range(20)}
    sent: list[UUID] = []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: [_send(database, sent, limit=3) for _ in range(10)], range(2)))
    assert sorted(sent) == sorted(made)


def test_a_broker_that_is_away_loses_nothing(database: Database) -> None:
    """If publishing fails, the message stays unsent."""
    submit(database)
    with (
        open_publisher("redis://127.0.0.1:1/0") as publish,
        pytest.raises(BrokerUnavailableError),
        database.write() as session,
    ):
        send_due(session, publish)
    assert _send(database, []) == 1


def test_a_message_is_not_sent_before_its_time(database: Database) -> None:
    """A job that is tried again later is not announced now."""
    fence = running(database)
    with database.write() as session:
        attempts.requeue(session, fence, cause="drain", delay_seconds=60)
    assert _send(database, []) == 0


def _backdate(database: Database, by_seconds: float) -> None:
    with database.write() as session:
        session.execute(update(OutboxMessage).values(sent_at=OutboxMessage.sent_at - seconds(by_seconds)))


def test_unfollowed_messages_are_sent_again(database: Database) -> None:
    """A wake-up that the broker lost is repeated after a while, ever more rarely."""
    job_id = submit(database)
    sent: list[UUID] = []
    for age, again in ((0, 0), (61, 1), (61, 0), (121, 1)):
        _send(database, sent)
        _backdate(database, age)
        with database.write() as session:
            assert len(sweeping.republish_unclaimed(session, after_seconds=60)) == again
    assert set(sent) == {job_id}


def test_messages_of_claimed_jobs_are_not_repeated(database: Database) -> None:
    """Once a worker followed, the wake-up has done its work."""
    job_id = submit(database)
    _send(database, [])
    claim(database, job_id)
    _backdate(database, 10_000)
    with database.write() as session:
        assert not sweeping.republish_unclaimed(session, after_seconds=60)


def test_one_sweeper_leads(database: Database, store: ArtifactStore, settings: Settings) -> None:
    """While another process holds the leader's lock, this one sweeps nothing; afterwards it does."""
    job_id = running(database, lease_seconds=0).job_id
    with Leader(database) as other, Leader(database) as this:
        (jobs, *_) = repairs(database, settings, this)
        assert other.leads()
        jobs.work()
        assert read(database, job_id).state == JobState.RUNNING
        other.__exit__(None, None, None)
        jobs.work()
        assert this.leads()
    assert read(database, job_id).state == JobState.QUEUED


def test_stages_have_their_time(database: Database, store: ArtifactStore, settings: Settings) -> None:
    """What stages found goes after the days that are set, and not before."""
    entry = "stages/shared/a/b/entry"
    _put(store, entry)
    for days, stays in ((1, True), (0, False)):
        with Leader(database) as leader:
            chores = deletions(database, store, settings.model_copy(update={"stage_days": days}), leader)
            next(chore for chore in chores if chore.name == "sweep of stages").work()
        assert (entry in _keys(store, "stages/")) is stays


def test_the_lead_ends_with_the_session(database: Database) -> None:
    """A leader whose session the server ended learns so, and takes the lead anew only if it is free."""
    with Leader(database) as first, Leader(database) as second:
        assert first.leads()
        assert not second.leads()
        with database.write() as session:
            session.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
            )
        assert second.leads()
        assert not first.leads()


def _put(store: ArtifactStore, key: str) -> None:
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"x")


def _keys(store: ArtifactStore, prefix: str) -> list[str]:
    return [found.key for found in store.list_objects(prefix)]


def test_objects_of_dead_attempts_go(database: Database, store: ArtifactStore, settings: Settings) -> None:
    """Of a job that ended, only the artifact's files stay; a running job's files are left alone."""
    first = running(database, lease_seconds=0)
    live = running(database)
    for fence in (first, live):
        _put(store, attempt_prefix(fence.job_id, 1) + "a")
    with database.write() as session:
        sweep_jobs(session, settings)
    second = claim(database, first.job_id).fence
    kept = attempt_prefix(first.job_id, 2)
    _put(store, kept + "a")
    with database.write() as session:
        attempts.finish_succeeded(session, second, NewArtifact(kept, {"files": []}, 1))
    assert sweep_objects(database, store, settings) == 0
    with database.write() as session:
        session.execute(update(Job).values(finished_at=Job.finished_at - seconds(10_000)))
    assert sweep_objects(database, store, settings) == 1
    assert _keys(store, f"jobs/{first.job_id}/") == [kept + "a"]
    assert len(_keys(store, f"jobs/{live.job_id}/")) == 1
    assert sweep_objects(database, store, settings) == 0


def test_expired_artifacts_go(database: Database, store: ArtifactStore, settings: Settings) -> None:
    """After its time an artifact's objects are deleted, and its row says so."""
    fence = running(database)
    prefix = attempt_prefix(fence.job_id, 1)
    _put(store, prefix + "a")
    with database.write() as session:
        attempts.finish_succeeded(session, fence, NewArtifact(prefix, {"files": []}, 1, keep_days=1))
    assert sweep_objects(database, store, settings) == 0
    with database.write() as session:
        session.execute(update(Artifact).values(expires_at=Artifact.expires_at - seconds(2 * 86400)))
    assert sweep_objects(database, store, settings) == 1
    assert _keys(store, prefix) == []


def test_the_loop_relays_and_sweeps(database: Database, settings: Settings, broker: "Redis") -> None:
    """A lost job is back on the queue of the broker without anyone's help."""
    fence = running(database, lease_seconds=0)
    _send(database, [])
    quick = settings.model_copy(
        update={"sweep_seconds": 0.05, "relay_seconds": 0.05, "retry_delay_seconds": 0}
    )
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(quick, stop))
    thread.start()
    try:
        until = time.monotonic() + 10
        while broker.llen(QUEUE) == 0 and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        stop.set()
        thread.join(timeout=10)
    assert not thread.is_alive()
    assert broker.llen(QUEUE) == 1
    assert read(database, fence.job_id).state == JobState.QUEUED


def test_the_process_stops_when_told(database: Database, settings: Settings, broker: "Redis") -> None:
    """`python -m services.outbox` sends what is due and ends well on SIGTERM."""
    submit(database)
    process = subprocess.Popen([sys.executable, "-m", "services.outbox"], env=environment(settings))
    try:
        until = time.monotonic() + 20
        while broker.llen(QUEUE) == 0 and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
    assert broker.llen(QUEUE) == 1
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL")) == 1
