"""A typed client of the Ghosted service. Needs neither torch nor any code of the server.

with Client("http://127.0.0.1:8000", key) as client:
    job = client.submit({"model": "owner/name", "layers": 7})
    job = client.wait(job.id, on_event=lambda event: print(event.type, event.payload))
    client.pull(job.id, Path("smaller-model"))

`AsyncClient` has the same methods for asyncio.
"""

from ghosted_client.aio import AsyncClient
from ghosted_client.client import Client
from ghosted_client.errors import (
    ApiError,
    ArtifactExpiredError,
    ArtifactNotReadyError,
    ChecksumMismatchError,
    ClientError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    InvalidError,
    JobFinishedError,
    JobNotFinishedError,
    KeyReusedError,
    NotAuthenticatedError,
    NotFoundError,
    TemporaryError,
    TooManyError,
    TransferFailedError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from ghosted_client.holdings import KnownDataset, KnownModel, Method, Upload, Worker
from ghosted_client.models import (
    Artifact,
    ArtifactFile,
    Event,
    Failure,
    Job,
    JobPage,
    LogLine,
    LogTail,
    Metric,
    Progress,
    Snippet,
    State,
    Validation,
)
from ghosted_client.patience import Patience

__all__ = [
    "ApiError",
    "Artifact",
    "ArtifactExpiredError",
    "ArtifactFile",
    "ArtifactNotReadyError",
    "AsyncClient",
    "ChecksumMismatchError",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionFailedError",
    "Event",
    "Failure",
    "ForbiddenError",
    "InvalidError",
    "Job",
    "JobFinishedError",
    "JobNotFinishedError",
    "JobPage",
    "KeyReusedError",
    "KnownDataset",
    "KnownModel",
    "LogLine",
    "LogTail",
    "Method",
    "Metric",
    "NotAuthenticatedError",
    "NotFoundError",
    "Patience",
    "Progress",
    "Snippet",
    "State",
    "TemporaryError",
    "TooManyError",
    "TransferFailedError",
    "UnexpectedAnswerError",
    "Upload",
    "Validation",
    "WaitTimeoutError",
    "Worker",
]
