"""/v1/jobs/{id}/artifact: the manifest, with a link a file."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from ghosted_core.checkpoint.snippets import FOLDER
from services.artifacts.fitting import fitting_snippets
from services.artifacts.manifest import Manifest, ManifestFile
from services.audit import link_given
from services.db.models import Artifact, Job
from services.dependencies import CurrentCaller, CurrentViewer, ReadSession, Tools
from services.errors import ArtifactExpiredError, ArtifactNotReadyError
from services.jobs import repository
from services.jobs.states import JobState
from services.toolbox import Toolbox

router = APIRouter(prefix="/v1/jobs", tags=["artifacts"])


class FileRead(BaseModel):
    """A file of the artifact and where to fetch it; the link answers to Range."""

    model_config = ConfigDict(frozen=True)

    path: str
    size_bytes: int
    sha256: str
    url: str


class SnippetRead(BaseModel):
    """A text that runs as it stands beside a folder that the artifact was pulled into."""

    model_config = ConfigDict(frozen=True)

    purpose: Literal["generate", "load", "serve", "ask"]
    title: str
    language: Literal["python", "shell"]
    requires: list[str] = Field(description="What has to be installed, as pip names it.")
    code: str


class ArtifactRead(BaseModel):
    """The result of a job."""

    model_config = ConfigDict(frozen=True)

    job_id: UUID
    attempt: int
    total_bytes: int
    missed_gate: bool = Field(
        description="Whether the result is worse than its spec allows: the job has failed with "
        "`quality_gate`, and its spec says `on_miss: keep`."
    )
    created_at: datetime
    expires_at: datetime | None = Field(description="When the files are deleted.")
    links_expire_at: datetime = Field(description="Until when the links work; ask again for fresh ones.")
    summary: dict[str, Any] = Field(description="What the job made.")
    files: list[FileRead]
    folder: str = Field(description="How the snippets call the folder that the files are pulled into.")
    snippets: list[SnippetRead] = Field(description="How to load and serve it; each of them is tested.")


@router.get("/{job_id}/artifact")
def get_artifact(
    job_id: UUID,
    session: ReadSession,
    viewer: CurrentViewer,
    caller: CurrentCaller,
    tools: Tools,
    response: Response,
) -> ArtifactRead:
    """The files of the result, each with a link that works for a while.

    A job that failed has one only where its result missed the gate and is kept.
    """
    job, artifact = repository.get_with_artifact(session, viewer, job_id)
    if artifact is None:
        raise ArtifactNotReadyError(f"job {job_id} is {job.state}")
    now = datetime.now(UTC)
    _check_kept(artifact, now)
    # The links are as good as a key for what they name: no cache may keep them.
    response.headers["Cache-Control"] = "no-store"
    shown = _show(job, artifact, tools, now)
    for file in shown.files:
        seconds = tools.settings.link_seconds
        link_given(caller, "download", seconds, job_id=str(job_id), file=file.path)
    return shown


def _check_kept(artifact: Artifact, now: datetime) -> None:
    expired = artifact.expires_at is not None and artifact.expires_at <= now
    if expired or artifact.objects_deleted_at is not None:
        raise ArtifactExpiredError(f"the artifact was kept until {artifact.expires_at}")


def _show(job: Job, artifact: Artifact, tools: Toolbox, now: datetime) -> ArtifactRead:
    manifest = Manifest.model_validate(artifact.manifest)
    return ArtifactRead(
        job_id=artifact.job_id,
        attempt=artifact.attempt,
        total_bytes=artifact.total_bytes,
        missed_gate=job.state == JobState.FAILED,
        created_at=artifact.created_at,
        expires_at=artifact.expires_at,
        links_expire_at=now + timedelta(seconds=tools.settings.link_seconds),
        summary=manifest.summary,
        files=[_show_file(artifact.prefix, file, tools) for file in manifest.files],
        folder=FOLDER,
        snippets=[SnippetRead.model_validate(asdict(one)) for one in fitting_snippets(manifest)],
    )


def _show_file(prefix: str, file: ManifestFile, tools: Toolbox) -> FileRead:
    name = PurePosixPath(file.path).name
    url = tools.store.link(prefix + file.path, file_name=name, seconds=tools.settings.link_seconds)
    return FileRead(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256, url=url)
