"""Short ways to bring a job to where a test begins."""

import json
import os
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
from pydantic import SecretStr

from ghosted_core.spec import JobSpec
from services.config import Settings
from services.db.models import Job
from services.db.sessions import Database
from services.jobs import attempts, listing, repository
from services.jobs.attempts import Claimed, Fence, NewArtifact
from services.jobs.repository import NewJob, Viewer
from services.jobs.rows import add_wake_up

EVERYONE = Viewer(None)
# For a machine with everything else to do.
PATIENCE_SECONDS = 60
SPEC = JobSpec.model_validate({"model": "owner/tiny", "layers": 2})
ARTIFACT = NewArtifact(prefix="jobs/x/1/", manifest={"files": []}, total_bytes=0)


def submit(database: Database, owner_id: UUID | None = None) -> UUID:
    """A queued job with its wake-up."""
    with database.write() as session:
        job = repository.add(session, NewJob(SPEC, deadline_seconds=3600, owner_id=owner_id))
        add_wake_up(session, job)
        return job.id


def claim(database: Database, job_id: UUID, lease_seconds: float = 60) -> Claimed:
    """The job, running."""
    with database.write() as session:
        claimed = attempts.claim(session, job_id, lease_seconds=lease_seconds, worker="tester")
    if claimed is None:
        raise LookupError(job_id)
    return claimed


def running(database: Database, lease_seconds: float = 60) -> Fence:
    """The fence of a new job that runs."""
    return claim(database, submit(database), lease_seconds).fence


def read(database: Database, job_id: UUID) -> Job:
    """The job's row."""
    with database.read() as session:
        return repository.get(session, EVERYONE, job_id)


def event_types(database: Database, job_id: UUID) -> list[str]:
    """What happened to the job, in order."""
    with database.read() as session:
        return [event.type for event in listing.list_events(session, job_id, after=0, limit=1000)]


@dataclass(frozen=True)
class Server:
    """Where the API is and how it is opened."""

    url: str
    key: str

    def request(self, method: str, path: str, **content: Any) -> httpx2.Response:
        """The API's answer to a request with the key."""
        headers = {"Authorization": f"Bearer {self.key}", **content.pop("headers", {})}
        content.setdefault("timeout", PATIENCE_SECONDS)
        return httpx2.request(method, self.url + path, headers=headers, **content)

    def submit(self, body: Any) -> httpx2.Response:
        """The API's answer to a submission; any text can be sent."""
        headers = {"Content-Type": "application/json"}
        return self.request("POST", "/v1/jobs", content=json.dumps(body).encode("ascii"), headers=headers)


def environment(settings: Settings) -> dict[str, str]:
    """The variables by which another process gets the same settings."""
    values = settings.model_dump(exclude_none=True)
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in values.items()
    }
    return {**os.environ, **{f"GHOSTED_{name.upper()}": value for name, value in plain.items()}}
