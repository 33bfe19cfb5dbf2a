"""What an earlier job found is told before the next."""

import time
from typing import Any

import pytest
from sqlalchemy import select

from ghosted_core.catalog import builtin_catalog
from ghosted_core.choices import Choices, choices_key, form_of
from ghosted_core.spec import JobSpec, ShortGpt, Streamline
from services.artifacts.stages import ENTRY, ROOT, stages_prefix
from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.config import Settings
from services.db.models import ApiKey
from services.db.sessions import Database
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server
from tests.integration.services.uploading import CONTENT, uploaded

pytestmark = pytest.mark.usefixtures("no_uploads")
BODY: dict[str, Any] = {"model": "smollm2-135m-instruct", "layers": 3, "strategy": "shortgpt"}
REMOVED = (21, 7, 12)
FOUND = Choices(30, {form_of(ShortGpt()): {3: REMOVED}, form_of(Streamline()): {3: (9, 10, 11)}})


@pytest.fixture(autouse=True)
def _nothing_remembered(store: ArtifactStore) -> None:
    store.delete_prefix(ROOT)


def remember(store: ArtifactStore, body: dict[str, Any], content: bytes, owner: Any = None) -> None:
    """As a worker leaves it after a job."""
    spec = JobSpec.model_validate(body)
    key = choices_key(spec, builtin_catalog())
    name = f"{stages_prefix(spec, owner)}{key}/{ENTRY}"
    store.client.put_object(Bucket=store.bucket, Key=name, Body=content)


def validated(server: Server, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    response = server.request("POST", "/v1/jobs:validate", json=body, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_what_was_found_is_told(server: Server, store: ArtifactStore) -> None:
    """By the same criterion and by others that look at the same; not for another number of layers."""
    before = validated(server, BODY)
    assert (before["kept"], before["from_earlier"]) == (None, False)
    remember(store, BODY, FOUND.to_bytes())
    after = validated(server, BODY)
    assert after["from_earlier"] is True
    assert after["removed"] == [7, 12, 21]
    assert after["kept"] == [layer for layer in range(30) if layer not in REMOVED]
    other = validated(server, {**BODY, "strategy": "streamline", "recovery": "none"})
    assert other["removed"] == [9, 10, 11]
    assert validated(server, {**BODY, "layers": 4})["removed"] is None
    assert validated(server, {**BODY, "calibration": {"seed": 5}})["removed"] is None


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * (2 << 20), FOUND.to_bytes()[:-9]], ids=len)
def test_what_is_damaged_is_nothing(server: Server, store: ArtifactStore, content: bytes) -> None:
    """It is as if no job had looked."""
    remember(store, BODY, content)
    assert validated(server, BODY)["from_earlier"] is False


def test_what_ones_own_text_showed_is_ones_own(
    server: Server, database: Database, store: ArtifactStore
) -> None:
    """Scores on an upload are told to its owner; with a token of the owner's, nothing shared is told."""
    upload_id = uploaded(server)
    with database.read() as session:
        owner = session.scalars(select(ApiKey.id)).one()
    named = {**BODY, "calibration": {"dataset": {"upload": upload_id}}}
    pinned = validated(server, named)["spec"]
    remember(store, pinned, FOUND.to_bytes(), owner)
    assert validated(server, named)["removed"] == [7, 12, 21]
    with database.write() as session:
        other = Server(server.url, create_key(session, "other"))
    twin = {**BODY, "calibration": {"dataset": {"upload": uploaded(other, CONTENT)}}}
    assert validated(other, twin)["from_earlier"] is False


def test_a_store_that_is_away_takes_no_time(settings: Settings, server: Server) -> None:
    """The answer comes within two seconds, without what only the store knows."""
    away = settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:9"})
    with serve(away) as url:
        began = time.monotonic()
        found = validated(Server(url, server.key), BODY)
    assert found["from_earlier"] is False
    assert found["candidates"] is not None
    # Much more than is promised: what is looked for is an hour of retries.
    assert time.monotonic() - began < 15
