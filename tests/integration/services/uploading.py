"""Short ways to upload texts and to name them."""

from typing import Any

import httpx2
from sqlalchemy import func, update

from services.artifacts.storage import ArtifactStore
from services.db.models import Upload
from services.db.sessions import Database
from services.jobs.rows import seconds
from services.uploads.repository import LINK_LASTS
from services.uploads.retention import expire_uploads
from tests.integration.services.helpers import Server
from tests.integration.services.test_api import BODY

PARTS = ("calibration", "evaluation", "corpora")
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
    """A submission that names the upload in that part; `corpora` are the evaluation's."""
    named = {"dataset": {"upload": upload_id}}
    if part == "corpora":
        return {**BODY, "evaluation": {"corpora": [{"name": "mine", **named}, "wikitext2"]}}
    return {**BODY, part: named}


def named_in(spec: dict[str, Any], part: str = "calibration") -> Any:
    """How the spec of such a job names it."""
    return spec["evaluation"]["corpora"][0]["dataset"] if part == "corpora" else spec[part]["dataset"]


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
