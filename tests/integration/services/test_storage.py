import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest

from services.artifacts.lifecycle import RULE_ID, drop_unfinished
from services.artifacts.storage import ArtifactStore, open_store
from services.config import Settings
from services.errors import StorageUnavailableError
from tests.faults.s3_proxy import Refuse, before

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleTypeDef

PART_BYTES = 8 * 2**20


@pytest.fixture
def prefix() -> str:
    """A prefix of this test's own."""
    return f"jobs/{uuid4()}/1/"


def test_large_files_come_back_unchanged(store: ArtifactStore, prefix: str, tmp_path: Path) -> None:
    """A file that goes up in several parts is the same when it comes down."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(2 * PART_BYTES + 123))
    store.upload(source, prefix + "weights")
    store.download(prefix + "weights", target)
    assert target.read_bytes() == source.read_bytes()
    assert [found.size_bytes for found in store.list_objects(prefix)] == [source.stat().st_size]


def test_listing_follows_every_page(store: ArtifactStore, prefix: str, tmp_path: Path) -> None:
    """All objects below the prefix are listed and deleted, and none beside it."""
    small = tmp_path / "small"
    small.write_bytes(b"x")
    keys = [f"{prefix}{index}" for index in range(5)]
    beside = prefix[:-1] + "0/file"
    for key in [*keys, beside]:
        store.upload(small, key)
    assert sorted(found.key for found in store.list_objects(prefix)) == sorted(keys)
    assert store.delete_prefix(prefix) == 5
    assert list(store.list_objects(prefix)) == []
    assert [found.key for found in store.list_objects(prefix[:-1] + "0/")] == [beside]


def test_a_prefix_is_a_folder(store: ArtifactStore) -> None:
    """A prefix without its slash would mean other jobs' objects too, and is refused."""
    with pytest.raises(ValueError, match="slash"):
        store.delete_prefix("jobs/1")


def test_unfinished_uploads_are_aborted(store: ArtifactStore, prefix: str) -> None:
    """Parts of an upload that nobody finished do not stay."""
    store.client.create_multipart_upload(Bucket=store.bucket, Key=prefix + "half")
    assert store.abort_uploads(prefix) == 1
    assert store.abort_uploads(prefix) == 0


def test_every_version_is_deleted(store: ArtifactStore, prefix: str) -> None:
    """In a bucket that keeps versions nothing is left of an object, neither versions nor markers."""
    kept = replace(store, bucket="service-tests-versions")
    kept.ensure_bucket()
    kept.client.put_bucket_versioning(Bucket=kept.bucket, VersioningConfiguration={"Status": "Enabled"})
    for content in (b"first", b"second"):
        kept.client.put_object(Bucket=kept.bucket, Key=prefix + "a", Body=content)
        kept.client.put_object(Bucket=kept.bucket, Key=prefix + "b", Body=content)
    kept.client.delete_object(Bucket=kept.bucket, Key=prefix + "b")
    assert kept.delete_prefix(prefix) == 5
    left = kept.client.list_object_versions(Bucket=kept.bucket, Prefix=prefix)
    assert (left.get("Versions", []), left.get("DeleteMarkers", [])) == ([], [])


def test_other_versions_stay(store: ArtifactStore, prefix: str) -> None:
    """What is to be kept is kept with its versions."""
    kept = replace(store, bucket="service-tests-versions")
    kept.ensure_bucket()
    kept.client.put_bucket_versioning(Bucket=kept.bucket, VersioningConfiguration={"Status": "Enabled"})
    for key in ("1/a", "2/a"):
        kept.client.put_object(Bucket=kept.bucket, Key=prefix + key, Body=b"x")
    assert kept.delete_prefix(prefix, keep=prefix + "2/") == 1
    assert [found.key for found in kept.list_objects(prefix)] == [prefix + "2/a"]


def test_the_bucket_drops_unfinished_uploads(store: ArtifactStore) -> None:
    """Once, after the days of the last call, and beside the rules that are there already."""
    theirs: "LifecycleRuleTypeDef" = {
        "ID": "theirs",
        "Status": "Enabled",
        "Filter": {"Prefix": "tmp/"},
        "Expiration": {"Days": 1},
    }
    store.client.put_bucket_lifecycle_configuration(
        Bucket=store.bucket, LifecycleConfiguration={"Rules": [theirs]}
    )
    assert drop_unfinished(store, days=7)
    assert drop_unfinished(store, days=3)
    rules = store.client.get_bucket_lifecycle_configuration(Bucket=store.bucket)["Rules"]
    assert {rule["ID"]: rule.get("AbortIncompleteMultipartUpload") for rule in rules} == {
        "theirs": None,
        RULE_ID: {"DaysAfterInitiation": 3},
    }


def test_a_store_without_lifecycles_is_fine(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """A store that knows no such rules is used without, and the log says so."""
    unknown = b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>"
    with before(settings.s3_endpoint) as proxy:
        proxy.plan = lambda asked: Refuse(501, unknown) if "lifecycle" in asked.query else None
        assert not drop_unfinished(
            open_store(settings.model_copy(update={"s3_endpoint": proxy.address})), days=3
        )
    assert "NotImplemented" in caplog.text


def test_a_store_without_versions_is_fine(settings: Settings, store: ArtifactStore, prefix: str) -> None:
    """Objects are deleted from a store that does not know what versions are."""
    store.client.put_object(Bucket=store.bucket, Key=prefix + "a", Body=b"x")
    with before(settings.s3_endpoint) as proxy:
        proxy.plan = lambda asked: Refuse(501, b"") if "versioning" in asked.query else None
        assert (
            open_store(settings.model_copy(update={"s3_endpoint": proxy.address})).delete_prefix(prefix) == 1
        )
    assert list(store.list_objects(prefix)) == []


def test_links_answer_to_range(store: ArtifactStore, prefix: str, tmp_path: Path) -> None:
    """A download can go on in the middle."""
    small = tmp_path / "small"
    small.write_bytes(b"0123456789")
    store.upload(small, prefix + "a")
    link = store.link(prefix + "a", file_name="a", seconds=60)
    response = httpx2.get(link, headers={"Range": "bytes=4-"})
    assert (response.status_code, response.content) == (206, b"456789")


def test_links_name_the_public_address(settings: Settings) -> None:
    """Links are signed for the address that users reach, not for the one inside."""
    public = settings.model_copy(update={"s3_public_endpoint": "https://files.example.org"})
    link = open_store(public).link("jobs/x/1/a", file_name="a", seconds=60)
    assert link.startswith(f"https://files.example.org/{settings.s3_bucket}/jobs/x/1/a?")
    assert "X-Amz-Expires=60" in link


def test_a_store_that_is_away_is_told_by_type(settings: Settings) -> None:
    """No answer becomes one error of ours, whose text names no address."""
    gone = settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:1"})
    with pytest.raises(StorageUnavailableError) as away:
        open_store(gone).check()
    assert "127.0.0.1" not in away.value.message


def test_a_missing_object_is_an_error(store: ArtifactStore, prefix: str, tmp_path: Path) -> None:
    """What is not there cannot be fetched."""
    with pytest.raises(StorageUnavailableError):
        store.download(prefix + "nothing", tmp_path / "x")


def test_the_bucket_can_be_made_twice(store: ArtifactStore) -> None:
    """A bucket that exists is left as it is."""
    store.ensure_bucket()
    store.check()


def test_the_store_needs_no_web_framework() -> None:
    """The worker uses it without loading the API."""
    code = "import sys, services.artifacts.storage; sys.exit('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
