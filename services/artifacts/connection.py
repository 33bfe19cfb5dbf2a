"""Clients of the object store, and what their errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.config import StoreSettings
from services.errors import StorageRefusedError, StorageUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# The store is busy, or was not asked in time: such requests may succeed later.
PASSING = frozenset({408, 409, 425, 429})


@dataclass(frozen=True)
class Patience:
    """How long one try of a request waits, and how many tries a request has."""

    connect_seconds: float = 3
    answer_seconds: float = 60
    tries: int = 4


# While somebody waits.
HASTY = Patience(connect_seconds=1, answer_seconds=3, tries=2)
# For what an answer can do without.
PROMPT = Patience(connect_seconds=0.2, answer_seconds=0.2, tries=1)
# For what will be done again anyway.
UNHURRIED = Patience(connect_seconds=2, answer_seconds=10, tries=1)


def connect(settings: StoreSettings, endpoint: str | None, patience: Patience) -> "S3Client":
    """A client for the store at `endpoint` (None: AWS); connects on first use."""
    checksums: Literal["when_required", "when_supported"] = settings.s3_checksums
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
        config=Config(
            signature_version="s3v4",
            # Stores under one host name have no host a bucket.
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
            connect_timeout=patience.connect_seconds,
            read_timeout=patience.answer_seconds,
            retries={"mode": "standard", "total_max_attempts": patience.tries},
        ),
    )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Errors of the client library leave the body as ours.

    Raises:
        StorageRefusedError: the store refuses the request for good.
        StorageUnavailableError: it does not answer, or fails for now.
    """
    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error, OSError) as error:
        # The error's own text may hold the store's address and the key's name: the type suffices.
        kind = StorageRefusedError if is_refusal(error) else StorageUnavailableError
        raise kind(f"the object store failed while {doing}: {type(error).__name__}") from error


def is_refusal(error: Exception) -> bool:
    """Whether the store understood the request and will not do it."""
    status = status_of(error)
    return status is not None and 400 <= status < 500 and status not in PASSING  # noqa: PLR2004 - HTTP's ranges


def status_of(error: Exception) -> int | None:
    """The HTTP status of the store's answer, None if there was none."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None
