"""What the API says about workers."""

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.db.models import Worker
from services.jobs.repository import Viewer
from services.workers.repository import Seen


class Shown(BaseModel):
    """Something that the API answers with."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class DeviceRead(Shown):
    """A device that a worker's jobs may use."""

    kind: str = Field(description="cpu or cuda.")
    name: str
    memory_bytes: int | None = Field(description="All memory that it has; null where it is not known.")


class RunningRead(Shown):
    """The job that a worker runs."""

    job_id: UUID
    attempt: int


class WorkerRead(Shown):
    """A worker, as it described itself when it was last seen."""

    id: str
    host: str
    pid: int
    version: str
    devices: list[DeviceRead]
    memory_class: str = Field(description="The largest class of jobs that it takes.")
    memory_bytes: int | None = Field(description="Memory of the device that its jobs run on.")
    free_memory_bytes: int | None
    free_disk_bytes: int | None = Field(description="Free space where its jobs write.")
    live: bool = Field(description="Whether it was seen lately.")
    busy: bool = Field(description="Whether it runs a job, of whatever key.")
    running: RunningRead | None = Field(description="The job that it runs, if that is yours.")
    started_at: datetime
    last_seen_at: datetime


class WorkerList(Shown):
    """All workers that there are, and those that are gone for a while only."""

    items: list[WorkerRead]


def read_worker(seen: Seen, viewer: Viewer) -> WorkerRead:
    """What the API shows of a worker to `viewer`: of other people's jobs only that there is one."""
    job = seen.job
    own = job is not None and viewer.owner_id in {None, job.owner_id}
    running = RunningRead(job_id=job.id, attempt=job.attempt) if job is not None and own else None
    columns = {column.key: getattr(seen.worker, column.key) for column in Worker.__table__.columns}
    return WorkerRead.model_validate(
        {**columns, "live": seen.live, "busy": job is not None, "running": running}
    )
