import subprocess
import sys
import threading
from uuid import uuid4

import pytest

from ghosted_client import (
    ApiError,
    Client,
    ConflictError,
    ConnectionFailedError,
    Event,
    InvalidError,
    Job,
    NotAuthenticatedError,
    NotFoundError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from ghosted_core.spec import JobSpec
from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.db.sessions import Database
from services.jobs import attempts
from tests.integration.services.helpers import SPEC, Server, claim


def test_a_spec_survives_the_way(client: Client) -> None:
    """What is submitted is what the service shows, beside the labels."""
    job = client.submit(SPEC, labels={"team": "a"}, deadline_seconds=60)
    shown = client.get(job.id)
    assert JobSpec.model_validate(shown.spec) == SPEC
    assert (shown.spec_digest, shown.labels, shown.deadline_seconds) == (SPEC.digest(), {"team": "a"}, 60)


def test_pages_lead_to_every_job(client: Client) -> None:
    """Following `next_after` lists all jobs, newest first."""
    made = [client.submit(SPEC).id for _ in range(3)]
    first = client.list(limit=2)
    second = client.list(limit=2, after=first.next_after)
    assert [job.id for job in first.items + second.items] == made[::-1]
    assert (first.has_more, second.has_more, second.next_after) == (True, False, None)
    assert client.list(state="failed").items == ()


def test_problems_become_typed_errors(client: Client, server: Server, base_url: str) -> None:
    """Each kind of refusal has its class, with the service's code and advice."""
    with pytest.raises(InvalidError) as invalid:
        client.submit({"model": "owner/tiny", "layers": 0})
    assert (invalid.value.code, invalid.value.problem.field) == ("invalid_request", "layers")
    assert invalid.value.hint
    with pytest.raises(NotFoundError, match="no job"):
        client.get(uuid4())
    with pytest.raises(ConflictError) as early:
        client.artifact(client.submit(SPEC).id)
    assert early.value.code == "artifact_not_ready"
    with Client(base_url) as stranger, pytest.raises(NotAuthenticatedError):
        stranger.list()


def test_a_service_that_is_away_is_told_apart() -> None:
    """No answer is an error of its own, after a few tries for a question and at once for a change."""
    waits: list[float] = []
    with Client("http://127.0.0.1:1", sleep=waits.append) as client:
        with pytest.raises(ConnectionFailedError):
            client.submit(SPEC)
        assert waits == []
        with pytest.raises(ConnectionFailedError):
            client.list()
        assert waits == sorted(waits)
        assert waits


@pytest.mark.parametrize("key", ["\N{LATIN SMALL LETTER U WITH DIAERESIS}", "a\nb"])
def test_a_key_that_none_can_be_is_refused(key: str) -> None:
    """Before anything is sent, and without being shown."""
    with pytest.raises(NotAuthenticatedError) as caught:
        Client("http://127.0.0.1:9", key)
    assert key not in str(caught.value)


def test_another_server_is_not_mistaken_for_the_service(store: ArtifactStore) -> None:
    """An answer in another form is an error, not a crash."""
    endpoint = store.client.meta.endpoint_url
    with Client(endpoint, sleep=lambda _: None) as client, pytest.raises(UnexpectedAnswerError):
        client.list()


def test_waiting_yields_every_event_once(client: Client, database: Database) -> None:
    """Events come in order without doubles while the job runs, and waiting ends with the job."""
    job = client.submit(SPEC)

    def work() -> None:
        fence = claim(database, job.id).fence
        for index in range(120):
            with database.write() as session:
                attempts.record_event(session, fence, "log", {"index": index})
        with database.write() as session:
            attempts.finish_cancelled(session, fence)

    worker = threading.Thread(target=work)
    worker.start()
    seen = client.watch(job.id, poll_seconds=0.01, timeout_seconds=60)
    events = [one for one in seen if isinstance(one, Event)]
    worker.join()
    assert [event.number for event in events] == list(range(1, 124))
    assert events[-1].type == "cancelled"


def test_watching_shows_the_job_between_events(client: Client, done: Job) -> None:
    """After the last event comes the job as it ended."""
    seen = list(client.watch(done.id))
    assert [type(one) for one in seen] == [Event, Event, Event, Job]
    assert seen[-1] == done


def test_waiting_has_an_end(client: Client) -> None:
    """A job that does not end in the time given is an error for the waiter only."""
    job = client.submit(SPEC)
    with pytest.raises(WaitTimeoutError):
        client.wait(job.id, timeout_seconds=0.05)
    assert client.cancel(job.id).state == "cancelled"


def test_metrics_are_read(client: Client, database: Database) -> None:
    """A figure without a value carries its reason."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    with database.write() as session:
        attempts.record_metric(session, fence, "perplexity.dense", 12.5, {"windows": 4})
        attempts.record_metric(session, fence, "perplexity.pruned", float("inf"), {})
    found = [(metric.name, metric.value, metric.reason) for metric in client.metrics(job.id)]
    assert found == [("perplexity.dense", 12.5, None), ("perplexity.pruned", None, "infinite")]


def test_foreign_artifacts_are_not_found(done: Job, server: Server, database: Database) -> None:
    """Another key gets no links."""
    with database.write() as session:
        other = create_key(session, "other")
    with Client(server.url, other) as stranger, pytest.raises(NotFoundError):
        stranger.artifact(done.id)


def test_the_client_needs_neither_server_nor_torch() -> None:
    """Importing it loads nothing but itself, the spec and its HTTP library."""
    code = (
        "import sys, ghosted_client; "
        "kept_out = {'torch', 'transformers', 'services', 'fastapi', 'sqlalchemy', 'boto3'}; "
        "sys.exit(bool(kept_out & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_api_errors_are_one_family() -> None:
    """A caller can catch every refusal by one class."""
    for kind in (InvalidError, NotFoundError, ConflictError, NotAuthenticatedError):
        assert issubclass(kind, ApiError)
