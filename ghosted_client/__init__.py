"""A typed client of the Ghosted service. Needs neither torch nor any code of the server.

with Client("http://127.0.0.1:8000", key) as client:
job = client.submit({"model": "owner/name", "layers": 7})
for event in client.wait(job.id):
print(event.type, event.payload)
client.pull(job.id, Path("smaller-model"))
"""

from ghosted_client.client import Client
from ghosted_client.errors import (
    ApiError,
    ChecksumMismatchError,
    ClientError,
    ConflictError,
    ConnectionFailedError,
    InvalidError,
    NotAuthenticatedError,
    NotFoundError,
    TemporaryError,
    TransferFailedError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from ghosted_client.models import (
    Artifact,
    ArtifactFile,
    Event,
    Failure,
    Job,
    JobPage,
    Metric,
    Progress,
)

__all__ = [
    "ApiError",
    "Artifact",
    "ArtifactFile",
    "ChecksumMismatchError",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionFailedError",
    "Event",
    "Failure",
    "InvalidError",
    "Job",
    "JobPage",
    "Metric",
    "NotAuthenticatedError",
    "NotFoundError",
    "Progress",
    "TemporaryError",
    "TransferFailedError",
    "UnexpectedAnswerError",
    "WaitTimeoutError",
]
