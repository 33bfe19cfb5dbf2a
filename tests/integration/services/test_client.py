import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest

from ghosted_client import (
    ApiError,
    Artifact,
    ChecksumMismatchError,
    Client,
    ConflictError,
    ConnectionFailedError,
    Event,
    InvalidError,
    Job,
    NotAuthenticatedError,
    NotFoundError,
    TransferFailedError,
    UnexpectedAnswerError,
    WaitTimeoutError,
    download,
)
from ghosted_core.errors import OutputExistsError
from ghosted_core.spec import JobSpec
from services.artifacts.manifest import Manifest, ManifestFile, attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.attempts import NewArtifact
from tests.integration.services.helpers import SPEC, Server, claim

FILES = {
    "config.json": b"{}",
    "sub/model-00001-of-00001.safetensors": bytes(range(256)) * 12_000,
    "empty.txt": b"",
}


def _listed(path: str, content: bytes) -> ManifestFile:
    return ManifestFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def finish(database: Database, store: ArtifactStore, job_id: UUID, manifest: Manifest | None = None) -> None:
    """The job has succeeded with FILES, listed as `manifest` says."""
    fence = claim(database, job_id).fence
    prefix = attempt_prefix(job_id, fence.attempt)
    for path, content in FILES.items():
        store.client.put_object(Bucket=store.bucket, Key=prefix + path, Body=content)
    told = manifest or Manifest(files=tuple(_listed(*item) for item in FILES.items()), summary={"kept": [0]})
    artifact = NewArtifact(prefix, told.model_dump(mode="json"), told.total_bytes, keep_days=1)
    with database.write() as session:
        attempts.finish_succeeded(session, fence, artifact)


@pytest.fixture
def done(client: Client, database: Database, store: ArtifactStore) -> Job:
    """A job that has succeeded."""
    job = client.submit(SPEC)
    finish(database, store, job.id)
    return client.get(job.id)


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


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
    events = list(client.wait(job.id, poll_seconds=0.01, timeout_seconds=30))
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
        list(client.wait(job.id, poll_seconds=0.01, timeout_seconds=0.05))
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


def test_a_pull_brings_every_byte(client: Client, done: Job, folder: Path) -> None:
    """The folder holds exactly the artifact's files, every piece was reported, nothing else is left."""
    pieces: list[int] = []
    artifact = client.pull(done.id, folder, on_bytes=pieces.append)
    assert _content(folder) == FILES
    assert sum(pieces) == artifact.total_bytes == sum(map(len, FILES.values()))
    assert artifact.summary == {"kept": [0]}
    assert list(folder.parent.iterdir()) == [folder]


def test_a_pull_goes_on_where_it_stopped(client: Client, done: Job, folder: Path) -> None:
    """Bytes that have arrived are not fetched again, and the whole is still checked."""
    path, content = "sub/model-00001-of-00001.safetensors", FILES["sub/model-00001-of-00001.safetensors"]
    half = folder.parent / f".{folder.name}.{done.id}.1.part" / path
    half.parent.mkdir(parents=True)
    half.write_bytes(content[: len(content) // 2])
    received: list[int] = []
    client.pull(done.id, folder, on_bytes=received.append)
    assert _content(folder) == FILES
    assert received[0] == len(content) // 2
    assert sum(received) == sum(map(len, FILES.values()))


@pytest.mark.parametrize("leftover", [b"wrong" * 10, b"x" * 4_000_000])
def test_a_wrong_leftover_is_found_out(client: Client, done: Job, folder: Path, leftover: bytes) -> None:
    """Bytes that are not the file's, or too many of them, never end in the folder."""
    path = "sub/model-00001-of-00001.safetensors"
    part = folder.parent / f".{folder.name}.{done.id}.1.part" / path
    part.parent.mkdir(parents=True)
    part.write_bytes(leftover)
    if len(leftover) < len(FILES[path]):
        with pytest.raises(ChecksumMismatchError):
            client.pull(done.id, folder)
        assert not folder.exists()
    client.pull(done.id, folder)
    assert _content(folder) == FILES


def test_a_damaged_object_is_not_accepted(
    client: Client, done: Job, store: ArtifactStore, folder: Path
) -> None:
    """A file whose bytes changed in the store leaves no folder behind."""
    content = bytearray(FILES["config.json"])
    content[0] ^= 1
    key = attempt_prefix(done.id, 1) + "config.json"
    store.client.put_object(Bucket=store.bucket, Key=key, Body=bytes(content))
    with pytest.raises(ChecksumMismatchError, match=r"config\.json"):
        client.pull(done.id, folder)
    assert not folder.exists()


def test_a_lost_object_is_an_error(client: Client, done: Job, store: ArtifactStore, folder: Path) -> None:
    """A file that is not in the store is named."""
    store.delete_prefix(attempt_prefix(done.id, 1) + "sub/")
    with pytest.raises(TransferFailedError, match="404"):
        client.pull(done.id, folder)
    assert not folder.exists()


def test_a_taken_folder_is_not_touched(client: Client, done: Job, folder: Path) -> None:
    """A folder that holds something stays as it is; an empty one is filled."""
    folder.mkdir()
    (folder / "mine").write_text("x")
    with pytest.raises(OutputExistsError):
        client.pull(done.id, folder)
    assert _content(folder) == {"mine": b"x"}
    (folder / "mine").unlink()
    client.pull(done.id, folder)
    assert _content(folder) == FILES


def test_stale_links_are_renewed(client: Client, done: Job, folder: Path) -> None:
    """If the links ran out on the way, fresh ones are asked for."""
    asked: list[int] = []

    def ask() -> Artifact:
        artifact = client.artifact(done.id)
        asked.append(1)
        if len(asked) > 1:
            return artifact
        broken = [file.model_copy(update={"url": file.url[:-6] + "aaaaaa"}) for file in artifact.files]
        return artifact.model_copy(update={"files": tuple(broken)})

    download.pull(ask, folder, lambda _: None)
    assert _content(folder) == FILES
    assert len(asked) >= 2


@pytest.mark.parametrize(
    "path", ["../out", "/etc/x", "a/../../x", "a\\..\\x", "C:x", "", ".", "a//b", "a/./b"]
)
def test_a_manifest_cannot_write_elsewhere(path: str) -> None:
    """Paths that are not plain and relative are refused before anything is fetched."""
    with pytest.raises(UnexpectedAnswerError):
        download.safe_path(path)


def test_links_work_without_the_key_and_only_for_their_file(client: Client, done: Job) -> None:
    """A link opens its own object as a file to save, to anyone who has it, and no other object."""
    config, weights, _ = client.artifact(done.id).files
    response = httpx2.get(config.url)
    assert response.content == FILES["config.json"]
    assert response.headers["content-disposition"] == 'attachment; filename="config.json"'
    assert httpx2.get(config.url.replace("config.json", weights.path, 1)).status_code == 403
    assert httpx2.get(config.url.partition("?")[0]).status_code == 403


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
