"""What a service has beside jobs, as frozen values: methods, aliases, workers, uploads."""

from datetime import datetime
from typing import Any
from uuid import UUID

from ghosted_client.models import Answer


class Method(Answer):
    """A strategy or a recovery, with the JSON schema of its settings."""

    name: str
    title: str
    paper: str | None
    description: str
    json_schema: dict[str, Any]


class MethodList(Answer):
    """All there are."""

    items: tuple[Method, ...]


class Origin(Answer):
    """Where something with an alias comes from: the Hub, a package, or the workers themselves."""

    kind: str
    name: str | None = None
    version: str | None = None
    file: str | None = None


class KnownModel(Answer):
    """A model that the service knows by an alias; its sizes, where they are known without fetching it."""

    alias: str
    title: str | None = None
    origin: Origin
    model_type: str | None = None
    layer_count: int | None = None
    parameters: int | None = None


class KnownModelList(Answer):
    """All there are."""

    items: tuple[KnownModel, ...]


class KnownDataset(Answer):
    """A text that the service knows by an alias."""

    alias: str
    title: str | None = None
    origin: Origin


class KnownDatasetList(Answer):
    """All there are."""

    items: tuple[KnownDataset, ...]


class Device(Answer):
    """A device that a worker's jobs may use."""

    kind: str
    name: str
    memory_bytes: int | None


class Running(Answer):
    """The job that a worker runs."""

    job_id: UUID
    attempt: int


class Worker(Answer):
    """A worker; `running` is the job that it runs if that is one of yours."""

    id: str
    host: str
    pid: int
    version: str
    devices: tuple[Device, ...]
    memory_class: str
    memory_bytes: int | None
    free_memory_bytes: int | None
    free_disk_bytes: int | None
    live: bool
    busy: bool
    running: Running | None
    started_at: datetime
    last_seen_at: datetime


class WorkerList(Answer):
    """All there are."""

    items: tuple[Worker, ...]


class Upload(Answer):
    """A text of one's own at the service; `dataset` is how a spec names it."""

    id: UUID
    format: str
    size_bytes: int
    complete: bool
    sha256: str | None
    documents: int | None
    created_at: datetime | None = None
    expires_at: datetime

    @property
    def dataset(self) -> dict[str, Any]:
        """What stands as `dataset` in the spec of a job that reads this text."""
        return {"kind": "upload", "id": str(self.id)}


class UploadPage(Answer):
    """Some uploads, newest first; `next_after` leads to the next page."""

    items: tuple[Upload, ...]
    has_more: bool
    next_after: UUID | None


class UploadBegun(Upload):
    """Where the bytes of a new upload go."""

    url: str
