"""A job that has ended with a result, and its files."""

import hashlib
from collections.abc import Mapping
from uuid import UUID

from services.artifacts.manifest import Manifest, ManifestFile, attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.attempts import NewArtifact
from services.jobs.failures import Failure
from tests.integration.services.helpers import claim

FILES = {
    "config.json": b"{}",
    "sub/model-00001-of-00001.safetensors": bytes(range(256)) * 12_000,
    "empty.txt": b"",
}


def _listed(path: str, content: bytes) -> ManifestFile:
    return ManifestFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


MISSED = Failure("quality_gate", "perplexity is 60 (dense 20).", "Remove fewer layers.", "save")


def finish(
    database: Database,
    store: ArtifactStore,
    job_id: UUID,
    manifest: Manifest | None = None,
    *,
    files: Mapping[str, bytes] = FILES,
    failure: Failure | None = None,
) -> None:
    """The job has `files`, listed as `manifest` says, and has succeeded, or failed with `failure`."""
    fence = claim(database, job_id).fence
    prefix = attempt_prefix(job_id, fence.attempt)
    for path, content in files.items():
        store.client.put_object(Bucket=store.bucket, Key=prefix + path, Body=content)
    told = manifest or Manifest(files=tuple(_listed(*item) for item in files.items()), summary={"kept": [0]})
    artifact = NewArtifact(prefix, told.model_dump(mode="json"), told.total_bytes, keep_days=1)
    with database.write() as session:
        if failure is None:
            attempts.finish_succeeded(session, fence, artifact)
        else:
            attempts.finish_failed(session, fence, failure, kept=artifact)
