"""The files of a job's result, and the way to them."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import quote
from uuid import UUID

from services.artifacts.manifest import Manifest
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact
from services.errors import ArtifactExpiredError, ArtifactNotReadyError, RouteNotFoundError


@dataclass(frozen=True)
class FileLine:
    """A file; `address` leads to a fresh link at each use."""

    path: str
    size_bytes: int
    sha256: str
    address: str


@dataclass(frozen=True)
class Files:
    """The files of an artifact; `gone` says that they were deleted when their time was over."""

    files: tuple[FileLine, ...]
    total_bytes: int
    created_at: datetime
    expires_at: datetime | None
    gone: bool


def files_of(artifact: Artifact, manifest: Manifest, now: datetime) -> Files:
    """All files, in the manifest's order."""
    lines = tuple(
        FileLine(file.path, file.size_bytes, file.sha256, _address(artifact.job_id, file.path))
        for file in manifest.files
    )
    return Files(
        lines, artifact.total_bytes, artifact.created_at, artifact.expires_at, _is_gone(artifact, now)
    )


def link_to(
    artifact: Artifact | None, path: str, store: ArtifactStore, now: datetime, *, seconds: int
) -> str:
    """A link, good for `seconds`, to the file that the artifact lists as `path`.

    Raises:
        ArtifactNotReadyError: there is no artifact.
        ArtifactExpiredError: its files were deleted.
        RouteNotFoundError: it lists no such file.
    """
    if artifact is None:
        raise ArtifactNotReadyError("this job has no artifact")
    if _is_gone(artifact, now):
        raise ArtifactExpiredError(f"the artifact was kept until {artifact.expires_at}")
    listed = {file.path for file in Manifest.model_validate(artifact.manifest).files}
    if path not in listed:
        raise RouteNotFoundError("the artifact lists no such file")
    return store.link(artifact.prefix + path, file_name=PurePosixPath(path).name, seconds=seconds)


def _address(job_id: UUID, path: str) -> str:
    return f"/jobs/{job_id}/files/{quote(path)}"


def _is_gone(artifact: Artifact, now: datetime) -> bool:
    expired = artifact.expires_at is not None and artifact.expires_at <= now
    return expired or artifact.objects_deleted_at is not None
