"""A text of one's own, from the first request to the job that names it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from ghosted_core.errors import GhostedError
from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.models import Upload
from services.db.sessions import Database
from services.uploads import service
from tests.integration.services.clients import KINDS, opened
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server
from tests.integration.services.test_api import problem
from tests.integration.services.uploading import (
    CONTENT,
    begin,
    complete,
    expire,
    job_on,
    let_expire,
    send,
    stored,
    uploaded,
)

pytestmark = pytest.mark.usefixtures("no_uploads")


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


@pytest.mark.parametrize("kind", KINDS)
def test_uploads_are_listed(server: Server, other: Server, database: Database, kind: str) -> None:
    """One's own that are kept, newest first, whole or begun, page after page; nobody else's."""
    gone = uploaded(server)
    let_expire(database)
    ids = [uploaded(server), uploaded(server), str(begin(server)["id"])][::-1]
    uploaded(other)
    page = server.request("GET", "/v1/uploads", params={"limit": 2}).json()
    assert ([one["id"] for one in page["items"]], page["has_more"]) == (ids[:2], True)
    rest = server.request("GET", "/v1/uploads", params={"after": page["next_after"]}).json()
    assert ([one["id"] for one in rest["items"]], rest["has_more"]) == (ids[2:], False)
    with opened(kind, server) as client:
        found = list(client.uploads())
        assert [str(one.id) for one in found] == ids
        assert [one.complete for one in found] == [False, True, True]
        assert [str(one.id) for one in client.uploads(limit=1)] == ids[:1]
    assert gone not in ids
