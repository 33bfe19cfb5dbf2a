import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from ghosted_client import (
    Artifact,
    ChecksumMismatchError,
    Client,
    Job,
    TransferFailedError,
    UnexpectedAnswerError,
    download,
)
from ghosted_client.driving import run_now
from ghosted_client.wire import Address, BlockingWire
from ghosted_core.errors import OutputExistsError
from services.artifacts.manifest import attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.sessions import Database
from tests.integration.services.clients import KINDS, opened
from tests.integration.services.conftest import serve
from tests.integration.services.finished import FILES, finish
from tests.integration.services.front import Answer, Cut, Front, standing_before
from tests.integration.services.helpers import SPEC, Server


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    """Each of the two clients in turn."""
    with opened(request.param, server) as made:
        yield made


def pull_of(ask: Callable[[], Artifact], folder: Path) -> None:
    """The artifact that `ask` tells of lies in `folder`."""

    async def told() -> Artifact:
        return ask()

    wire = BlockingWire(Address(), time.sleep)
    run_now(download.pull(wire, told, folder, lambda _: None))
    run_now(wire.close())


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_pull_brings_every_byte(client: Client, done: Job, folder: Path) -> None:
    """The folder holds exactly the artifact's files, every piece was reported, nothing else is left."""
    pieces: list[int] = []
    artifact = client.pull(done.id, folder, on_bytes=pieces.append)
    assert _content(folder) == FILES
    assert sum(pieces) == artifact.total_bytes == sum(map(len, FILES.values()))
    assert (artifact.summary, artifact.missed_gate) == ({"kept": [0]}, False)
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
    assert len(content) // 2 in received
    assert sum(received) == sum(map(len, FILES.values()))


@pytest.fixture
def store_front(settings: Settings) -> Iterator[Front]:
    """What stands before the object store."""
    with standing_before(settings.s3_endpoint) as front:
        yield front


@pytest.fixture(params=KINDS)
def through(
    request: pytest.FixtureRequest, settings: Settings, server: Server, store_front: Front
) -> Iterator[Client]:
    """Each of the two clients, with links that lead through `store_front`."""
    public = settings.model_copy(update={"s3_public_endpoint": store_front.url})
    with serve(public) as url, opened(request.param, Server(url, server.key)) as made:
        yield made


@pytest.fixture
def finished(through: Client, database: Database, store: ArtifactStore) -> Job:
    """A job that has succeeded."""
    job = through.submit(SPEC)
    finish(database, store, job.id)
    return through.get(job.id)


def test_an_interrupted_transfer_goes_on_by_range(
    through: Client, finished: Job, store_front: Front, folder: Path
) -> None:
    """After each break only the rest is asked for; the key of the service never goes to the store."""
    store_front.fits = lambda request: "safetensors" in request.path
    cuts = [1_500_000, 1_000_000]
    store_front.faults = [Cut(size) for size in cuts]
    received: list[int] = []
    through.pull(finished.id, folder, on_bytes=received.append)
    assert _content(folder) == FILES
    asked = [one.headers.get("range") for one in store_front.heard if "safetensors" in one.path]
    assert asked == [None, "bytes=1500000-", "bytes=2500000-"]
    assert sum(received) == sum(map(len, FILES.values()))
    assert not any("authorization" in one.headers for one in store_front.heard)


def test_files_come_at_the_same_time(
    through: Client, finished: Job, store_front: Front, folder: Path
) -> None:
    """All three files are on their way together: none is answered before all were asked for."""
    store_front.meeting = threading.Barrier(len(FILES))
    through.pull(finished.id, folder)
    assert _content(folder) == FILES


def test_one_worker_takes_one_file_at_a_time(
    through: Client, finished: Job, store_front: Front, folder: Path
) -> None:
    """The largest file comes first."""
    through.pull(finished.id, folder, workers=1)
    assert "safetensors" in store_front.heard[0].path
    assert _content(folder) == FILES


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


def test_no_more_bytes_are_taken_than_stated(client: Client, done: Job, folder: Path) -> None:
    """A store that sends more than the manifest states is stopped at once, not at the checksum."""
    artifact = client.artifact(done.id)
    # Not the empty one, of which nothing can be too much: any of them may be the first to fail.
    files = [
        file.model_copy(update={"size_bytes": file.size_bytes - 1})
        for file in artifact.files
        if file.size_bytes
    ]
    with pytest.raises(TransferFailedError, match="more than"):
        pull_of(lambda: artifact.model_copy(update={"files": tuple(files)}), folder)
    assert not folder.exists()


def test_stale_links_are_renewed(client: Client, done: Job, folder: Path) -> None:
    """If the links ran out on the way, fresh ones are asked for."""
    artifact = client.artifact(done.id)
    broken = [file.model_copy(update={"url": file.url[:-6] + "aaaaaa"}) for file in artifact.files]
    answers = [artifact.model_copy(update={"files": tuple(broken)}), artifact]
    asked: list[int] = []

    def ask() -> Artifact:
        asked.append(1)
        return answers[min(len(asked), len(answers)) - 1]

    pull_of(ask, folder)
    assert _content(folder) == FILES
    assert len(asked) >= 2


def test_a_refused_link_is_asked_for_again(
    through: Client, finished: Job, store_front: Front, folder: Path
) -> None:
    """A link that the store refuses once is renewed, and the pull ends well."""
    store_front.faults = [Answer(403)]
    through.pull(finished.id, folder)
    assert _content(folder) == FILES
    assert len(store_front.heard) == len(FILES) + 1


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
