"""What goes up comes back, or is noticed."""

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest

from ghosted_core.errors import CheckpointError
from services.artifacts.manifest import Manifest, ManifestFile
from services.artifacts.transfers import Carrier
from services.config import StoreSettings
from worker.delivery import describe, read_back, upload
from worker.environment import courier_environment, job_environment
from worker.errors import StoppedError, StopReason, UploadChangedError
from worker.supervisor import Tools


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Something like a finished checkpoint."""
    folder = tmp_path / "checkpoint"
    (folder / "additional").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(20_000_000))
    (folder / "additional" / "empty.jinja").touch()
    (folder / "ghosted.json").write_text(json.dumps({"parameters": 7, "spec": {"secret": "path"}}))
    return folder


@pytest.fixture
def prefix() -> str:
    """A place of the test's own in the bucket."""
    return f"jobs/{uuid4()}/1/"


@pytest.fixture
def carrier(tools: Tools) -> Carrier:
    """Parts as short as they may be."""
    return Carrier(tools.store, 5 * 2**20, patience_seconds=10)


def nothing(_: object) -> None:
    """Do not count."""


def files_in(folder: Path) -> tuple[ManifestFile, ...]:
    """What is to be carried."""
    return describe(folder, lambda: None).files


def test_round_trip(carrier: Carrier, checkpoint: Path, prefix: str, tmp_path: Path) -> None:
    """Large, nested and empty files come back byte for byte, and each byte counts once per way."""
    files = files_in(checkpoint)
    counts: list[int] = []
    upload(carrier, prefix, checkpoint, files, counts.append)
    read_back(carrier, prefix, tmp_path / "back", files, counts.append)
    assert files_in(tmp_path / "back") == files
    assert sum(counts) == 2 * sum(file.size_bytes for file in files)


def test_manifest_lists_everything(checkpoint: Path) -> None:
    """The manifest holds every file with its length, and of the job's words only the known ones."""
    manifest = describe(checkpoint, lambda: None)
    assert [file.path for file in manifest.files] == [
        "additional/empty.jinja",
        "ghosted.json",
        "model.safetensors",
    ]
    assert manifest.summary == {"parameters": 7}
    assert Manifest.model_validate(manifest.model_dump(mode="json")) == manifest


def test_stray_object_is_noticed(tools: Tools, carrier: Carrier, checkpoint: Path, prefix: str) -> None:
    """An object that lies below the prefix already makes the upload fail."""
    tools.store.client.put_object(Bucket=tools.store.bucket, Key=prefix + "old.safetensors", Body=b"old")
    with pytest.raises(UploadChangedError):
        upload(carrier, prefix, checkpoint, files_in(checkpoint), nothing)


def test_changed_object_is_noticed(
    tools: Tools, carrier: Carrier, checkpoint: Path, prefix: str, tmp_path: Path
) -> None:
    """An object of the same length but with other bytes is noticed on the way back."""
    files = files_in(checkpoint)
    upload(carrier, prefix, checkpoint, files, nothing)
    key = prefix + "ghosted.json"
    size_bytes = next(file.size_bytes for file in files if file.path == "ghosted.json")
    tools.store.client.put_object(Bucket=tools.store.bucket, Key=key, Body=b" " * size_bytes)
    with pytest.raises(UploadChangedError, match=r"ghosted\.json"):
        read_back(carrier, prefix, tmp_path / "back", files, nothing)


def test_hashing_can_be_stopped(checkpoint: Path) -> None:
    """Between two blocks of a file it is asked whether to go on: files take minutes to read."""
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 5:
            raise StoppedError(StopReason.CANCELLED)

    with pytest.raises(StoppedError):
        describe(checkpoint, check)
    assert len(asked) == 5


def test_courier_sees_the_store_only(tools: Tools, tmp_path: Path) -> None:
    """The courier's variables are the store's settings and a job's; none of database and broker."""
    settings = tools.settings
    given = courier_environment({"GHOSTED_DATABASE_URL": "x", "HF_TOKEN": "x"}, tmp_path, settings)
    extra = set(given) - set(job_environment({}, tmp_path))
    assert {name for name in extra if not name.startswith(("AWS_", "PYTHON"))} <= {
        f"GHOSTED_{name.upper()}" for name in StoreSettings.model_fields
    }
    assert given["GHOSTED_S3_SECRET_KEY"] == settings.s3_secret_key.get_secret_value()
    values = " ".join(given.values())
    assert settings.database_url.get_secret_value() not in values
    assert settings.redis_url.get_secret_value() not in values


def test_links_are_refused(checkpoint: Path) -> None:
    """A link in the checkpoint is never followed: it could lead to any file of the worker."""
    (checkpoint / "innocent.json").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match=r"innocent\.json"):
        files_in(checkpoint)


@pytest.mark.parametrize("content", ["[1]", "no JSON", ""])
def test_broken_manifest_is_refused(checkpoint: Path, content: str) -> None:
    """A checkpoint whose own manifest is not a JSON object is refused."""
    (checkpoint / "ghosted.json").write_text(content)
    with pytest.raises(CheckpointError):
        files_in(checkpoint)


def test_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    """A process that said it succeeded but left nothing has failed."""
    with pytest.raises(CheckpointError):
        files_in(tmp_path / "nothing")
