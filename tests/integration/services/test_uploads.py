"""A text of one's own, from the first request to the job that names it."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from ghosted_core.errors import GhostedError
from ghosted_core.spec import JobSpec
from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.config import Settings
from services.db.models import Job, Upload
from services.db.sessions import Database
from services.jobs.rows import seconds
from services.uploads import service
from services.uploads.references import pinned_uploads
from services.uploads.repository import LINK_LASTS
from services.uploads.retention import expire_uploads
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server
from tests.integration.services.test_api import BODY, problem

CONTENT = b'{"text": "The fox."}\n{"text": "The dog."}\n'


def begin(server: Server, content: bytes = CONTENT, kind: str = "jsonl") -> dict[str, Any]:
    """A new upload, nothing sent yet."""
    response = server.request("POST", "/v1/uploads", json={"format": kind, "size_bytes": len(content)})
    assert response.status_code == 201, response.text
    begun: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/v1/uploads/{begun['id']}"
    return begun


def send(begun: dict[str, Any], content: bytes = CONTENT) -> httpx2.Response:
    """The store's answer to the bytes; no key of the API goes there."""
    return httpx2.put(begun["url"], content=content)


def complete(server: Server, begun: dict[str, Any]) -> httpx2.Response:
    return server.request("POST", f"/v1/uploads/{begun['id']}:complete")


def uploaded(server: Server, content: bytes = CONTENT, kind: str = "jsonl") -> str:
    """The id of an upload that was completed."""
    begun = begin(server, content, kind)
    assert send(begun, content).status_code == 200
    assert complete(server, begun).status_code == 200
    return str(begun["id"])


def job_on(upload_id: str, part: str = "calibration") -> dict[str, Any]:
    return {**BODY, part: {"dataset": {"upload": upload_id}}}


@pytest.fixture
def other(server: Server, database: Database) -> Server:
    """The same API with another key."""
    with database.write() as session:
        return Server(server.url, create_key(session, "other"))


@pytest.fixture(autouse=True)
def _no_objects(store: ArtifactStore) -> Iterator[None]:
    yield
    store.delete_prefix("uploads/")


def stored(store: ArtifactStore, upload_id: str) -> list[str]:
    return [found.key for found in store.list_objects(f"uploads/{upload_id}/")]


def let_expire(database: Database) -> None:
    """All uploads are past their time, and so are their links."""
    past = {"expires_at": func.now() - seconds(1), "created_at": func.now() - LINK_LASTS}
    with database.write() as session:
        session.execute(update(Upload).values(past))


def expire(database: Database, store: ArtifactStore) -> int:
    with database.write() as session:
        return expire_uploads(session, store)


def test_a_text_is_sent_checked_and_named(server: Server, database: Database) -> None:
    """After it was completed a job may name the upload, and its spec holds the content's checksum."""
    begun = begin(server)
    assert begun["complete"] is False
    assert send(begun).status_code == 200
    done = complete(server, begun).json()
    checksum = hashlib.sha256(CONTENT).hexdigest()
    assert (done["complete"], done["documents"], done["sha256"]) == (True, 2, checksum)
    assert server.request("GET", f"/v1/uploads/{begun['id']}").json() == done
    for part in ("calibration", "evaluation"):
        job = server.submit(job_on(begun["id"], part)).json()
        assert job["spec"][part]["dataset"] == {"kind": "upload", "id": begun["id"], "sha256": checksum}


def test_a_text_of_paragraphs(server: Server) -> None:
    """Plain text is an upload too."""
    upload_id = uploaded(server, b"one\n\ntwo\n\nthree", "txt")
    assert server.request("GET", f"/v1/uploads/{upload_id}").json()["documents"] == 3


def test_completing_twice_changes_nothing(server: Server) -> None:
    """An answer that was lost can be asked for again."""
    begun = begin(server)
    send(begun)
    assert complete(server, begun).json() == complete(server, begun).json()


def test_the_link_is_for_the_public_address(settings: Settings, server: Server) -> None:
    """The link is signed for the address at which users reach the store."""
    public = settings.model_copy(update={"s3_public_endpoint": "https://files.example.org"})
    with serve(public) as url:
        begun = begin(Server(url, server.key))
    assert urlsplit(begun["url"]).netloc == "files.example.org"


def test_the_link_takes_what_was_announced_only(server: Server) -> None:
    """A longer or shorter body is refused, by the store or at the latest when it is completed."""
    for content in (CONTENT + b"x" * 100, CONTENT[:-5]):
        begun = begin(server)
        send(begun, content)
        problem(complete(server, begun), 422, "upload_refused")


def test_nothing_sent_is_nothing_completed(server: Server) -> None:
    """An upload without bytes is refused; its sender may still send them."""
    begun = begin(server)
    problem(complete(server, begun), 422, "upload_refused")
    send(begun)
    assert complete(server, begun).status_code == 200


@pytest.mark.parametrize("content", [b'{"text": "hush"\n', b"\xff\xfe\xff", b'{"other": "hush"}'])
def test_what_is_no_text_is_refused(server: Server, content: bytes) -> None:
    """The answer names the line and does not quote it; no job may name the upload."""
    begun = begin(server, content)
    send(begun, content)
    response = complete(server, begun)
    assert "line 1" in problem(response, 422, "upload_refused")["detail"]
    assert "hush" not in response.text
    problem(server.submit(job_on(begun["id"])), 422, "upload_not_complete")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"format": "jsonl", "size_bytes": 10**12}, "size_bytes"),
        ({"format": "jsonl", "size_bytes": 0}, "size_bytes"),
        ({"format": "parquet", "size_bytes": 5}, "format"),
        ({"format": "../../x", "size_bytes": 5}, "format"),
        ({"format": "jsonl", "size_bytes": 5, "name": "/etc/passwd"}, "name"),
        ({"format": "jsonl", "size_bytes": 5, "url": "http://169.254.169.254/"}, "url"),
    ],
)
def test_bad_beginnings_are_refused(server: Server, body: dict[str, Any], field: str) -> None:
    """Too long, empty, of an unknown kind, with a name or an address: no upload begins."""
    response = server.request("POST", "/v1/uploads", json=body)
    assert problem(response, 422, "invalid_request")["field"] == field


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ":complete"), ("DELETE", "")],
    ids=["get", "complete", "delete"],
)
def test_foreign_uploads_do_not_exist(server: Server, other: Server, method: str, path: str) -> None:
    """Another key's upload and an unknown one are answered alike, and nothing happens to it."""
    upload_id = uploaded(server)
    for unknown in (upload_id, str(uuid4())):
        problem(other.request(method, f"/v1/uploads/{unknown}{path}"), 404, "upload_not_found")
    assert server.request("GET", f"/v1/uploads/{upload_id}").status_code == 200


def test_jobs_cannot_name_foreign_uploads(server: Server, other: Server, database: Database) -> None:
    """A job on another key's upload is not made."""
    upload_id = uploaded(server)
    for part in ("calibration", "evaluation"):
        problem(other.submit(job_on(upload_id, part)), 404, "upload_not_found")
    with database.read() as session:
        assert session.scalars(select(Job)).all() == []


def test_a_checksum_that_was_given_must_be_right(server: Server) -> None:
    """A user may say which content is meant; another one is refused."""
    upload_id = uploaded(server)
    right, wrong = hashlib.sha256(CONTENT).hexdigest(), "0" * 64
    for checksum, status in ((right, 202), (wrong, 422)):
        named = {"kind": "upload", "id": upload_id, "sha256": checksum}
        response = server.submit({**BODY, "calibration": {"dataset": named}})
        assert response.status_code == status


def test_an_upload_stays_until_the_job_that_names_it_is_there(server: Server, database: Database) -> None:
    """Between the look at an upload and the commit of its job nobody can delete it."""
    upload_id = UUID(uploaded(server))
    spec = JobSpec.model_validate(job_on(str(upload_id)))
    deleting = select(Upload.id).where(Upload.id == upload_id).with_for_update(nowait=True)
    with database.write() as submitting, database.write() as other:
        pinned_uploads(submitting, spec, None, keep=True)
        with pytest.raises(OperationalError), other.begin_nested():
            other.scalar(deleting)


@dataclass
class Watched:
    """The object store, with something that is done while an object is read."""

    store: ArtifactStore
    meanwhile: Callable[[], None]

    def size(self, key: str) -> int | None:
        return self.store.size(key)

    def read(self, key: str) -> Iterator[bytes]:
        self.meanwhile()
        yield from self.store.read(key)


def test_reading_an_upload_holds_no_lock(
    settings: Settings, server: Server, database: Database, store: ArtifactStore
) -> None:
    """While the whole object is checked its row is free: the upload can be deleted, and then is gone."""
    begun = begin(server)
    send(begun)
    path = f"/v1/uploads/{begun['id']}"
    deleted: list[int] = []
    watched = Watched(store, lambda: deleted.append(server.request("DELETE", path).status_code))
    tools: Any = SimpleNamespace(database=database, store=watched, settings=settings)
    # Either the store misses the object or, if its bytes were on their way, the database the row.
    with pytest.raises(GhostedError):
        service.complete(tools, None, UUID(begun["id"]))
    assert deleted == [204]


def test_a_validation_looks_for_uploads(server: Server, other: Server) -> None:
    """A foreign one, an unfinished one and a good one are answered as a submission is."""
    good, unfinished = uploaded(server), begin(server)["id"]
    for who, named in ((other, good), (server, str(uuid4())), (server, unfinished)):
        refused = who.request("POST", "/v1/jobs:validate", json=job_on(named))
        assert refused.status_code in {404, 422}
        assert refused.json() == who.submit(job_on(named)).json()
    found = server.request("POST", "/v1/jobs:validate", json=job_on(good)).json()
    assert found["spec_digest"] == server.submit(job_on(good)).json()["spec_digest"]


def test_uploads_of_a_key_are_limited(settings: Settings, server: Server, other: Server) -> None:
    """One more than allowed is 429; deleting one makes room, and another key's do not count."""
    with serve(settings.model_copy(update={"uploads_per_key": 1})) as url:
        own = Server(url, server.key)
        upload_id = uploaded(own)
        refused = own.request("POST", "/v1/uploads", json={"format": "txt", "size_bytes": 1})
        problem(refused, 429, "too_many_uploads")
        assert int(refused.headers["retry-after"]) > 0
        begin(Server(url, other.key))
        assert own.request("DELETE", f"/v1/uploads/{upload_id}").status_code == 204
        begin(own)


def test_a_deleted_upload_is_gone(server: Server, store: ArtifactStore) -> None:
    """Its object is deleted, and nobody finds it any more."""
    upload_id = uploaded(server)
    assert stored(store, upload_id)
    assert server.request("DELETE", f"/v1/uploads/{upload_id}").status_code == 204
    assert stored(store, upload_id) == []
    problem(server.request("GET", f"/v1/uploads/{upload_id}"), 404, "upload_not_found")


def test_what_comes_after_the_deletion_is_swept(
    server: Server, database: Database, store: ArtifactStore
) -> None:
    """Bytes sent with a link that outlives its upload are deleted once it works no more."""
    begun = begin(server)
    assert server.request("DELETE", f"/v1/uploads/{begun['id']}").status_code == 204
    assert send(begun).status_code == 200
    problem(complete(server, begun), 404, "upload_not_found")
    assert expire(database, store) == 0
    let_expire(database)
    assert expire(database, store) == 1
    assert stored(store, begun["id"]) == []


def test_an_upload_in_use_stays(server: Server, database: Database, store: ArtifactStore) -> None:
    """While a job that names it waits or runs it is neither deleted nor expires; afterwards it is."""
    upload_id = uploaded(server)
    job_id = server.submit(job_on(upload_id, "evaluation")).json()["id"]
    problem(server.request("DELETE", f"/v1/uploads/{upload_id}"), 409, "upload_in_use")
    let_expire(database)
    assert expire(database, store) == 0
    assert stored(store, upload_id)
    server.request("POST", f"/v1/jobs/{job_id}/cancel")
    assert expire(database, store) == 1
    assert stored(store, upload_id) == []


def test_uploads_expire(server: Server, database: Database, store: ArtifactStore) -> None:
    """Past its time an upload is as good as none, completed or not, and is swept with its object."""
    half, whole, fresh = begin(server), uploaded(server), None
    send(half)
    let_expire(database)
    fresh = uploaded(server)
    problem(server.request("GET", f"/v1/uploads/{whole}"), 404, "upload_not_found")
    problem(server.submit(job_on(whole)), 404, "upload_not_found")
    assert expire(database, store) == 2
    assert [stored(store, one) for one in (half["id"], whole)] == [[], []]
    assert stored(store, fresh)
    with database.read() as session:
        assert [str(found) for found in session.scalars(select(Upload.id))] == [fresh]


def test_an_upload_lasts_as_long_as_the_settings_say(settings: Settings, server: Server) -> None:
    """Completed, it is kept for the days of the settings; begun, not much longer than its link."""
    with serve(settings.model_copy(update={"upload_days": 3})) as url:
        own = Server(url, server.key)
        done = own.request("GET", f"/v1/uploads/{uploaded(own)}").json()
        begun = begin(own)

    def hours(upload: dict[str, Any], start: str) -> float:
        from datetime import datetime

        return (
            datetime.fromisoformat(upload["expires_at"]) - datetime.fromisoformat(upload[start])
        ).total_seconds() / 3600

    assert hours(done, "completed_at") == pytest.approx(72)
    assert hours(begun, "created_at") < 3


def test_the_text_is_in_no_answer_and_no_table(server: Server, database: Database) -> None:
    """What was sent lies in the object store and nowhere else."""
    upload_id = uploaded(server, b'{"text": "hush hush"}')
    answers = [
        server.request("GET", f"/v1/uploads/{upload_id}").text,
        server.submit(job_on(upload_id)).text,
    ]
    with database.read() as session:
        tables = [str(session.execute(table.select()).all()) for table in Upload.metadata.sorted_tables]
    assert "hush" not in "".join([*answers, *tables])
