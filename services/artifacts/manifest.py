"""The list of an artifact's files, by which a download is checked."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def check_relative_path(path: str) -> str:
    """`path`, if it names a file below some folder.

    Raises:
        ValueError: it is absolute, climbs out, or is spelled in a way that some system reads otherwise.
    """
    parts = PurePosixPath(path).parts
    plain = path.isprintable() and not any(sign in path for sign in '\\:*?"<>|')
    if not plain or not parts or "/".join(parts) != path or path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} is not a plain relative path")
    return path


class ManifestFile(BaseModel):
    """One file: its path below the artifact's folder, its length and its SHA-256."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, AfterValidator(check_relative_path)]
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """All files of an artifact; `summary` says what the job made (kept layers, base model, ...)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[ManifestFile, ...] = Field(min_length=1)
    summary: dict[str, Any] = {}

    @model_validator(mode="after")
    def _paths_differ(self) -> Self:
        if len({file.path for file in self.files}) != len(self.files):
            raise ValueError("a path is listed more than once")
        return self

    @property
    def total_bytes(self) -> int:
        """The length of all files together."""
        return sum(file.size_bytes for file in self.files)


def job_prefix(job_id: UUID) -> str:
    """Where all objects of a job lie: keys hold ids of ours, never text of the user."""
    return f"jobs/{job_id}/"


def attempt_prefix(job_id: UUID, attempt: int) -> str:
    """Where the objects of one attempt lie."""
    return f"{job_prefix(job_id)}{attempt}/"
