"""A job that has succeeded, and its files."""

import hashlib
from collections.abc import Mapping
from uuid import UUID

from services.artifacts.manifest import Manifest, ManifestFile, attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.attempts import NewArtifact
from tests.integration.services.helpers import claim

FILES = {
    "config.json": b"{}",
    "sub/model-00001-of-00001.safetensors": bytes(range(256)) * 12_000,
    "empty.txt": b"",
}


def _listed(path: str, content: bytes) -> ManifestFile:
    return ManifestFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def finish(
    database: Database,
    store: ArtifactStore,
    job_id: UUID,
    manifest: Manifest | None = None,
    *,
    files: Mapping[str, bytes] = FILES,
) -> None:
    """The job has succeeded with `files`, listed as `manifest` says."""
    fence = claim(database, job_id).fence
    prefix = attempt_prefix(job_id, fence.attempt)
    for path, content in files.items():
        store.client.put_object(Bucket=store.bucket, Key=prefix + path, Body=content)
    told = manifest or Manifest(files=tuple(_listed(*item) for item in files.items()), summary={"kept": [0]})
    artifact = NewArtifact(prefix, told.model_dump(mode="json"), told.total_bytes, keep_days=1)
    with database.write() as session:
        attempts.finish_succeeded(session, fence, artifact)
