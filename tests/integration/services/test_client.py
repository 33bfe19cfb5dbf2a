import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from ghosted_client import (
    ApiError,
    ArtifactExpiredError,
    ArtifactNotReadyError,
    AsyncClient,
    Client,
    ConflictError,
    ConnectionFailedError,
    Event,
    InvalidError,
    Job,
    JobFinishedError,
    JobNotFinishedError,
    KeyReusedError,
    NotAuthenticatedError,
    NotFoundError,
    Patience,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from ghosted_core.errors import DataError, DataNotFoundError
from ghosted_core.spec import JobSpec
from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.db.models import ApiKey, Artifact, Upload
from services.db.sessions import Database
from services.jobs import attempts
from tests.integration.services.clients import KINDS, opened
from tests.integration.services.helpers import SPEC, Server, claim, submit

NO_PATIENCE = Patience(waits_seconds=())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return str(request.param)


@pytest.fixture
def client(kind: str, server: Server) -> Iterator[Client]:
    """Each of the two clients in turn."""
    with opened(kind, server) as made:
        yield made


@pytest.fixture
def owner(server: Server, database: Database) -> UUID:
    """Whose key the clients have."""
    with database.read() as session:
        return session.scalars(select(ApiKey.id)).one()


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
    with pytest.raises(ArtifactNotReadyError) as early:
        client.artifact(client.submit(SPEC).id)
    assert (early.value.code, early.value.problem.status) == ("artifact_not_ready", 409)
    with Client(base_url) as stranger, pytest.raises(NotAuthenticatedError):
        stranger.list()


def test_every_wrong_field_is_named(client: Client) -> None:
    """Beside the first flaw the error carries the others."""
    with pytest.raises(InvalidError) as caught:
        client.submit({"model": "owner/tiny", "layers": 0, "dtype": "int3"})
    assert {flaw.field for flaw in caught.value.problem.flaws} == {"layers", "dtype"}


def test_a_service_that_is_away_is_told_apart() -> None:
    """No answer is an error of its own, after a few tries with growing waits between them."""
    waits: list[float] = []
    with Client("http://127.0.0.1:1", sleep=waits.append) as client:
        for ask in (client.list, lambda: client.submit(SPEC)):
            waits.clear()
            with pytest.raises(ConnectionFailedError):
                ask()
            assert waits == sorted(waits)
            assert waits


def test_a_service_that_is_away_is_told_apart_when_awaited() -> None:
    """The same error, without a wait if there is to be none."""
    with opened("asyncio", Server("http://127.0.0.1:1", "x"), NO_PATIENCE) as client:
        with pytest.raises(ConnectionFailedError):
            client.list()
        with pytest.raises(ConnectionFailedError):
            client.wait(uuid4())


@pytest.mark.parametrize("key", ["\N{LATIN SMALL LETTER U WITH DIAERESIS}", "a\nb"])
def test_a_key_that_none_can_be_is_refused(key: str) -> None:
    """Before anything is sent, and without being shown."""
    with pytest.raises(NotAuthenticatedError) as caught:
        Client("http://127.0.0.1:9", key)
    assert key not in str(caught.value)


def test_another_server_is_not_mistaken_for_the_service(store: ArtifactStore) -> None:
    """An answer in another form is an error, not a crash."""
    endpoint = store.client.meta.endpoint_url
    with Client(endpoint, patience=NO_PATIENCE) as client, pytest.raises(UnexpectedAnswerError):
        client.list()


@pytest.mark.parametrize("poll_seconds", [None, 0.01], ids=["stream", "polling"])
def test_watching_yields_every_event_once(
    client: Client, database: Database, poll_seconds: float | None
) -> None:
    """Events come in order without doubles while the job runs, and watching ends with the job."""
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
    seen = client.watch(job.id, poll_seconds=poll_seconds, timeout_seconds=60)
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


def test_the_finished_job_is_waited_for(client: Client, done: Job) -> None:
    """`wait` returns the job as it ended; the callbacks hear of every event and of the job."""
    events: list[Event] = []
    jobs: list[Job] = []
    assert client.wait(done.id, on_event=events.append, on_job=jobs.append) == done
    assert [event.number for event in events] == [1, 2, 3]
    assert jobs == [done]


def test_events_so_far_and_to_come(client: Client, done: Job, database: Database) -> None:
    """`events` ends with what has happened, or with the job if it is to follow; both begin after `after`."""
    assert [event.number for event in client.events(done.id, after=1)] == [2, 3]
    assert [event.number for event in client.events(done.id, after=1, follow=True)] == [2, 3]
    waiting = client.submit(SPEC)
    assert [event.type for event in client.events(waiting.id)] == ["submitted"]


def test_a_watcher_may_leave(client: Client) -> None:
    """A loop that ends before the job leaves a client that works."""
    job = client.submit(SPEC)
    for one in client.watch(job.id):
        if isinstance(one, Job):
            break
    assert client.get(job.id) == one


def test_every_page_is_asked_for(client: Client, database: Database, owner: UUID) -> None:
    """`jobs` goes on past the end of a page, and stops where it is told to."""
    made = [submit(database, owner) for _ in range(103)]
    assert [job.id for job in client.jobs()] == made[::-1]
    assert [job.id for job in client.jobs(limit=101, after=made[-1])] == made[-2:0:-1]
    assert list(client.jobs(limit=0)) == []


def test_filters_select(client: Client) -> None:
    """By state, model, labels and time of submission; a job has to fit all of them."""
    early = client.submit(SPEC, labels={"team": "a", "run": "1"})
    late = client.submit({"model": "owner/other", "layers": 1}, labels={"team": "a", "run": "2"})
    client.cancel(early.id)
    found = {
        "state": client.jobs(state="cancelled"),
        "model": client.jobs(model="owner/tiny"),
        "labels": client.jobs(labels={"team": "a", "run": "1"}),
        "before": client.jobs(created_before=late.created_at),
        "from": client.jobs(created_from=early.created_at, model="owner/tiny"),
    }
    assert {name: [job.id for job in jobs] for name, jobs in found.items()} == {
        name: [early.id] for name in found
    }
    assert list(client.jobs(created_from=datetime.now(UTC) + timedelta(hours=1))) == []


def test_a_key_of_ones_own_makes_one_job(client: Client) -> None:
    """Sent twice it is one job; another request under that key is refused; without one they are two."""
    first = client.submit(SPEC, idempotency_key="mine")
    assert client.submit(SPEC, idempotency_key="mine").id == first.id
    with pytest.raises(KeyReusedError):
        client.submit({"model": "owner/tiny", "layers": 1}, idempotency_key="mine")
    assert client.submit(SPEC).id != client.submit(SPEC).id


def test_a_submission_can_be_looked_at(client: Client) -> None:
    """Validation tells layers and needs, and makes no job; what it refuses has a type."""
    named = {"name": "explicit", "indices": "1-2"}
    found = client.validate({"model": "smollm2-135m-instruct", "strategy": named})
    assert (found.removed, found.kept) == ((1, 2), (0, *range(3, 30)))
    assert found.model is not None
    assert found.model.layer_count == 30
    assert found.estimate is not None
    assert found.estimate.parameters_after < found.estimate.parameters_before
    with pytest.raises(InvalidError):
        client.validate({"model": "owner/tiny", "layers": 0})
    assert client.list().items == ()


def test_a_clone_has_the_edits(client: Client) -> None:
    """Retrying makes another job with what changes, and leaves the first."""
    job = client.submit(SPEC, labels={"team": "a"})
    clone = client.retry(job.id, {"layers": 1})
    assert (clone.retry_of, clone.spec["layers"], clone.labels) == (job.id, 1, {"team": "a"})
    assert client.get(job.id).spec["layers"] == 2
    same = client.retry(job.id, idempotency_key="again")
    assert client.retry(job.id, idempotency_key="again").id == same.id


def test_only_what_has_ended_is_deleted_and_only_what_has_not_is_cancelled(client: Client) -> None:
    """Each of the two says by its type what stands in the way."""
    job = client.submit(SPEC)
    with pytest.raises(JobNotFinishedError):
        client.delete(job.id)
    assert client.cancel(job.id).state == "cancelled"
    with pytest.raises(JobFinishedError):
        client.cancel(job.id)
    client.delete(job.id)
    with pytest.raises(NotFoundError):
        client.get(job.id)


def test_the_end_of_the_log_is_read(client: Client, database: Database) -> None:
    """At most so many lines, the last ones, and whether there were more."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    for message in ("one", "two"):
        with database.write() as session:
            attempts.record_event(session, fence, "log", {"message": message, "level": "info"})
    tail = client.log(job.id, lines=1)
    assert ([line.message for line in tail.items], tail.truncated) == (["two"], True)


def test_methods_are_listed(client: Client) -> None:
    """Each strategy and recovery with the schema of its settings."""
    assert "streamline" in {method.name for method in client.strategies()}
    assert {method.name: method.json_schema for method in client.recoveries()}["ghosted"]["properties"]


def test_a_text_is_uploaded(client: Client, tmp_path: Path) -> None:
    """What `upload` returns is a data set that a job can name; the bytes sent are counted."""
    file = tmp_path / "text.jsonl"
    file.write_bytes(b'{"text": "The fox."}\n' * 50_000)
    sent: list[int] = []
    upload = client.upload(file, on_bytes=sent.append)
    assert (upload.complete, upload.documents, sum(sent)) == (True, 50_000, file.stat().st_size)
    job = client.submit({"model": "owner/tiny", "layers": 1, "calibration": {"dataset": upload.dataset}})
    assert job.spec["calibration"]["dataset"]["sha256"] == upload.sha256
    with pytest.raises(ConflictError):
        client.delete_upload(upload.id)
    client.cancel(job.id)
    client.delete_upload(upload.id)


def kept(database: Database) -> set[UUID]:
    """The uploads that somebody could still name."""
    with database.read() as session:
        return set(session.scalars(select(Upload.id).where(Upload.expires_at > func.now())))


def test_what_is_no_text_is_not_kept(client: Client, tmp_path: Path, database: Database) -> None:
    """A file that the service refuses leaves no upload behind; one of another kind is not even sent."""
    file = tmp_path / "text.jsonl"
    file.write_bytes(b"no json")
    before = kept(database)
    with pytest.raises(InvalidError) as caught:
        client.upload(file)
    assert caught.value.code == "upload_refused"
    assert kept(database) == before
    with pytest.raises(DataError):
        client.upload(tmp_path / "text.zip")
    with pytest.raises(DataNotFoundError):
        client.upload(tmp_path / "none.txt")


def test_both_clients_have_the_same_methods() -> None:
    """Each method of one is one of the other, with the same arguments and defaults."""
    own = {"close", *(name for name in vars(Client) if not name.startswith("_"))}
    both = {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert own == both
    for name in own:
        blocking, awaited = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert list(blocking.parameters.values()) == list(awaited.parameters.values())


def test_metrics_are_read(client: Client, database: Database) -> None:
    """A figure without a value carries its reason."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    with database.write() as session:
        attempts.record_metric(session, fence, "perplexity.dense", 12.5, {"windows": 4})
        attempts.record_metric(session, fence, "perplexity.pruned", float("inf"), {})
    found = [(metric.name, metric.value, metric.reason) for metric in client.metrics(job.id)]
    assert found == [("perplexity.dense", 12.5, None), ("perplexity.pruned", None, "infinite")]


@pytest.mark.parametrize("column", ["expires_at", "objects_deleted_at"])
def test_an_artifact_past_its_time_is_gone(
    done: Job, client: Client, database: Database, column: str
) -> None:
    """410 with a code of its own, whether its files are deleted already or will be; the job stays."""
    with database.write() as session:
        session.execute(update(Artifact).where(Artifact.job_id == done.id).values({column: func.now()}))
    with pytest.raises(ArtifactExpiredError) as gone:
        client.artifact(done.id)
    assert (gone.value.code, gone.value.problem.status) == ("artifact_expired", 410)
    assert client.get(done.id).state == "succeeded"


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
