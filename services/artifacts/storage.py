"""The object store: one bucket, a prefix an attempt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.config import Settings
from services.errors import StorageUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PIECE_BYTES = 1 << 20
# The most keys that one request may delete.
DELETE_BATCH = 1000


@dataclass(frozen=True)
class StoredObject:
    """An object's key and length."""

    key: str
    size_bytes: int


@dataclass(frozen=True)
class ArtifactStore:
    """Reads, writes and signs in one bucket. Its clients may be used from several threads.

    `signer` knows the store by the address that users reach: a signature covers the host.
    """

    bucket: str
    client: "S3Client"
    signer: "S3Client"

    def ensure_bucket(self) -> None:
        """The bucket exists.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with _translated("making the bucket"):
            names = [bucket.get("Name") for bucket in self.client.list_buckets()["Buckets"]]
            if self.bucket not in names:
                self.client.create_bucket(Bucket=self.bucket)

    def check(self) -> None:
        """Return if the bucket answers.

        Raises:
            StorageUnavailableError: it does not.
        """
        with _translated("looking for the bucket"):
            self.client.head_bucket(Bucket=self.bucket)

    def upload(self, path: Path, key: str) -> None:
        """The file's bytes lie under `key`; large files go up in parts.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with _translated("uploading"):
            self.client.upload_file(str(path), self.bucket, key)

    def download(self, key: str, path: Path) -> None:
        """The object's bytes lie in the file `path`.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such object.
        """
        with _translated("downloading"):
            self.client.download_file(self.bucket, key, str(path))

    def upload_link(self, key: str, *, size_bytes: int, seconds: int) -> str:
        """An address to which anyone can send exactly `size_bytes` bytes for this key, for `seconds`."""
        return self.signer.generate_presigned_url(
            "put_object",
            # Part of the signature: a body of another length is refused by the store.
            Params={"Bucket": self.bucket, "Key": key, "ContentLength": size_bytes},
            ExpiresIn=seconds,
        )

    def size(self, key: str) -> int | None:
        """The object's length in bytes; None if there is none.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with _translated("looking for an object"):
            answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        found = [entry["Size"] for entry in answer.get("Contents", []) if entry["Key"] == key]
        return found[0] if found else None

    def read(self, key: str) -> Iterator[bytes]:
        """The object's bytes, in pieces.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such object.
        """
        with _translated("reading"):
            body = self.client.get_object(Bucket=self.bucket, Key=key)["Body"]
            yield from body.iter_chunks(PIECE_BYTES)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """Every object below `prefix`, which ends in a slash.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with _translated("listing"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=_folder(prefix)
            )
            for page in pages:
                for found in page.get("Contents", []):
                    yield StoredObject(found["Key"], found["Size"])

    def delete_prefix(self, prefix: str, *, keep: str | None = None) -> int:
        """No object is left below `prefix`, except below `keep`; returns how many went.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        kept = None if keep is None else _folder(keep)
        keys = [
            found.key for found in self.list_objects(prefix) if kept is None or not found.key.startswith(kept)
        ]
        for start in range(0, len(keys), DELETE_BATCH):
            self._delete(keys[start : start + DELETE_BATCH])
        return len(keys)

    def _delete(self, keys: list[str]) -> None:
        with _translated("deleting"):
            answer = self.client.delete_objects(
                Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        if answer.get("Errors"):
            raise StorageUnavailableError(f"the store kept {len(answer['Errors'])} objects")

    def abort_uploads(self, prefix: str) -> int:
        """No unfinished multipart upload is left below `prefix`; returns how many there were.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with _translated("aborting uploads"):
            answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=_folder(prefix))
            uploads = answer.get("Uploads", [])
            for upload in uploads:
                self.client.abort_multipart_upload(
                    Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        return len(uploads)

    def link(self, key: str, *, file_name: str, seconds: int) -> str:
        """An address from which anyone can fetch exactly this object for `seconds`, as a file to save."""
        disposition = f'attachment; filename="{file_name}"'
        return self.signer.generate_presigned_url(
            "get_object",
            Params={"Bucket": self.bucket, "Key": key, "ResponseContentDisposition": disposition},
            ExpiresIn=seconds,
        )


def open_store(settings: Settings) -> ArtifactStore:
    """The store of `settings`; connects on first use."""
    public = settings.s3_public_endpoint or settings.s3_endpoint
    return ArtifactStore(
        settings.s3_bucket, _client(settings, settings.s3_endpoint), _client(settings, public)
    )


def _client(settings: Settings, endpoint: str | None) -> "S3Client":
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
            connect_timeout=3,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": 4},
        ),
    )


def _folder(prefix: str) -> str:
    # Without the slash, "jobs/x/1" would also mean "jobs/x/10".
    if not prefix.endswith("/"):
        raise ValueError(f"prefix {prefix!r} does not end in a slash")
    return prefix


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error, OSError) as error:
        # The error's own text may hold the store's address and the key's name: the type suffices.
        raise StorageUnavailableError(
            f"the object store failed while {doing}: {type(error).__name__}"
        ) from error
