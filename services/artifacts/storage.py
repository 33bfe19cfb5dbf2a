"""The object store: one bucket, a prefix an attempt."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from services.artifacts.connection import Patience, connect, status_of, translated
from services.config import StoreSettings
from services.errors import StorageUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

PIECE_BYTES = 1 << 20
# The most keys that one request may delete.
DELETE_BATCH = 1000
# What stores answer that know no versions.
NOT_KNOWN = frozenset({405, 501})
GONE = 404


@dataclass(frozen=True)
class StoredObject:
    """An object's key, its length, and when it was written by the store's clock."""

    key: str
    size_bytes: int
    modified_at: datetime


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
        with translated("making the bucket"):
            names = [bucket.get("Name") for bucket in self.client.list_buckets()["Buckets"]]
            if self.bucket not in names:
                self.client.create_bucket(Bucket=self.bucket)

    def check(self) -> None:
        """Return if the bucket answers.

        Raises:
            StorageUnavailableError: it does not.
        """
        with translated("looking for the bucket"):
            self.client.head_bucket(Bucket=self.bucket)

    def upload(self, path: Path, key: str) -> None:
        """The file's bytes lie under `key`; large files go up in parts.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with translated("uploading"):
            self.client.upload_file(str(path), self.bucket, key)

    def download(self, key: str, path: Path) -> None:
        """The object's bytes lie in the file `path`.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such object.
        """
        with translated("downloading"):
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
        with translated("looking for an object"):
            answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        found = [entry["Size"] for entry in answer.get("Contents", []) if entry["Key"] == key]
        return found[0] if found else None

    def read(self, key: str) -> Iterator[bytes]:
        """The object's bytes, in pieces.

        Raises:
            StorageUnavailableError: the store does not answer, refuses, or has no such object.
        """
        with translated("reading"):
            body = self.client.get_object(Bucket=self.bucket, Key=key)["Body"]
            yield from body.iter_chunks(PIECE_BYTES)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """Every object below `prefix`, which ends in a slash.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with translated("listing"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=_folder(prefix)
            )
            for page in pages:
                for found in page.get("Contents", []):
                    yield StoredObject(found["Key"], found["Size"], found["LastModified"])

    def delete_prefix(self, prefix: str, *, keep: str | None = None) -> int:
        """No object is left below `prefix`, except below `keep`, in no version; returns how many went.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        kept = None if keep is None else _folder(keep)
        names = [
            name for name in self._names(_folder(prefix)) if kept is None or not name["Key"].startswith(kept)
        ]
        for start in range(0, len(names), DELETE_BATCH):
            self._delete(names[start : start + DELETE_BATCH])
        return len(names)

    def _names(self, prefix: str) -> "Iterator[ObjectIdentifierTypeDef]":
        """What has to be deleted, one by one, for nothing to be left below `prefix`."""
        if not self._keeps_versions():
            for found in self.list_objects(prefix):
                yield {"Key": found.key}
            return
        with translated("listing versions"):
            pages = self.client.get_paginator("list_object_versions")
            for page in pages.paginate(Bucket=self.bucket, Prefix=prefix):
                # A marker hides an object; left alone it would be listed for ever.
                for version in (*page.get("Versions", []), *page.get("DeleteMarkers", [])):
                    yield {"Key": version["Key"], "VersionId": version["VersionId"]}

    def _keeps_versions(self) -> bool:
        """Whether the bucket has, or may have, more than one version of an object."""
        with translated("asking for versions"):
            try:
                return "Status" in self.client.get_bucket_versioning(Bucket=self.bucket)
            except ClientError as error:
                if status_of(error) in NOT_KNOWN:
                    return False
                raise

    def _delete(self, names: "list[ObjectIdentifierTypeDef]") -> None:
        with translated("deleting"):
            answer = self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": names, "Quiet": True})
        if answer.get("Errors"):
            raise StorageUnavailableError(f"the store kept {len(answer['Errors'])} objects")

    def abort_uploads(self, prefix: str, *, begun_before: datetime | None = None) -> int:
        """No unfinished multipart upload (begun before that) is left below `prefix`; how many there were.

        Raises:
            StorageUnavailableError: the store does not answer or refuses.
        """
        with translated("aborting uploads"):
            pages = self.client.get_paginator("list_multipart_uploads")
            found = [
                (upload["Key"], upload["UploadId"])
                for page in pages.paginate(Bucket=self.bucket, Prefix=_folder(prefix))
                for upload in page.get("Uploads", [])
                if begun_before is None or upload["Initiated"] < begun_before
            ]
            for key, upload_id in found:
                self._abort(key, upload_id)
        return len(found)

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            # Finished or aborted by somebody else meanwhile.
            if status_of(error) != GONE:
                raise

    def link(self, key: str, *, file_name: str, seconds: int) -> str:
        """An address from which anyone can fetch exactly this object for `seconds`, as a file to save."""
        disposition = f'attachment; filename="{file_name}"'
        return self.signer.generate_presigned_url(
            "get_object",
            Params={"Bucket": self.bucket, "Key": key, "ResponseContentDisposition": disposition},
            ExpiresIn=seconds,
        )


def open_store(settings: StoreSettings, patience: Patience | None = None) -> ArtifactStore:
    """The store of `settings`; connects on first use."""
    patience = patience or Patience()
    public = settings.s3_public_endpoint or settings.s3_endpoint
    client = connect(settings, settings.s3_endpoint, patience)
    signer = client if public == settings.s3_endpoint else connect(settings, public, patience)
    return ArtifactStore(settings.s3_bucket, client, signer)


def _folder(prefix: str) -> str:
    # Without the slash, "jobs/x/1" would also mean "jobs/x/10".
    if not prefix.endswith("/"):
        raise ValueError(f"prefix {prefix!r} does not end in a slash")
    return prefix
