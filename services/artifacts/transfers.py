"""Large files up and down, part by part. What has arrived is not sent again."""

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, cast

from s3transfer.utils import ReadFileChunk

from services.artifacts.connection import translated
from services.artifacts.storage import ArtifactStore
from services.errors import StorageRefusedError, StorageUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

T = TypeVar("T")
OnBytes = Callable[[int], None]

AT_ONCE = 4
MOST_PARTS = 10_000  # S3's limit.
LONGEST_WAIT_SECONDS = 15.0
COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Part:
    """A stretch of a file; numbers begin at 1."""

    number: int
    start: int
    size_bytes: int


def cut(size_bytes: int, part_bytes: int) -> list[Part]:
    """The parts of a file, in order: each of the same length but the last; at most `MOST_PARTS`."""
    step = max(part_bytes, math.ceil(size_bytes / MOST_PARTS))
    starts = range(0, size_bytes, step)
    return [Part(n, start, min(step, size_bytes - start)) for n, start in enumerate(starts, start=1)]


@dataclass(frozen=True)
class Carrier:
    """Moves files between disk and store, and outlasts a store that fails for `patience_seconds`.

    `on_bytes` is told, from several threads, how many bytes more have arrived.
    """

    store: ArtifactStore
    part_bytes: int
    patience_seconds: float

    def send(self, path: Path, key: str, on_bytes: OnBytes) -> None:
        """The file's bytes lie under `key`.

        Raises:
            StorageRefusedError: the store refuses for good.
            StorageUnavailableError: it failed for longer than the patience allows.
        """
        size_bytes = path.stat().st_size
        if size_bytes > self.part_bytes:
            self._send_parts(path, key, cut(size_bytes, self.part_bytes), on_bytes)
        else:
            self.persist("uploading", lambda: self._put(path, key))
            on_bytes(size_bytes)

    def persist(self, doing: str, action: Callable[[], T]) -> T:
        """What `action` returned; it is tried again while the store fails and patience lasts.

        Raises:
            StorageRefusedError: the store refuses for good.
            StorageUnavailableError: it failed for longer than the patience allows.
        """
        give_up = time.monotonic() + self.patience_seconds
        for wait_seconds in _waits():
            try:
                with translated(doing):
                    return action()
            except StorageRefusedError:
                raise
            except StorageUnavailableError:
                if time.monotonic() + wait_seconds > give_up:
                    raise
            time.sleep(wait_seconds)
        raise StorageUnavailableError("the object store does not answer")

    def _put(self, path: Path, key: str) -> None:
        with path.open("rb") as body:
            self.store.client.put_object(Bucket=self.store.bucket, Key=key, Body=body)

    def _send_parts(self, path: Path, key: str, parts: list[Part], on_bytes: OnBytes) -> None:
        upload_id = self.persist("beginning an upload", lambda: self._begin(key))

        def send(part: Part) -> "CompletedPartTypeDef":
            etag = self.persist("uploading", lambda: self._put_part(path, key, upload_id, part))
            on_bytes(part.size_bytes)
            return {"ETag": etag, "PartNumber": part.number}

        self._complete(key, upload_id, self._each(send, parts), path.stat().st_size)

    def _begin(self, key: str) -> str:
        return self.store.client.create_multipart_upload(Bucket=self.store.bucket, Key=key)["UploadId"]

    def _put_part(self, path: Path, key: str, upload_id: str, part: Part) -> str:
        with ReadFileChunk.from_filename(str(path), part.start, part.size_bytes) as body:
            answer = self.store.client.upload_part(
                Bucket=self.store.bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=part.number,
                # It has all that the client library asks of a file; that library's own transfers use it so.
                Body=cast("IO[bytes]", body),
            )
        return answer["ETag"]

    def _complete(
        self, key: str, upload_id: str, parts: "list[CompletedPartTypeDef]", size_bytes: int
    ) -> None:
        def complete() -> None:
            self.store.client.complete_multipart_upload(
                Bucket=self.store.bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
            )

        try:
            self.persist("completing", complete)
        except StorageRefusedError:
            # An earlier try may have succeeded without our hearing of it; the upload is unknown then.
            if self.persist("looking", lambda: self._size(key)) != size_bytes:
                raise

    def _size(self, key: str) -> int:
        return self.store.client.head_object(Bucket=self.store.bucket, Key=key)["ContentLength"]

    def fetch(self, key: str, path: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        """The object's first `size_bytes`, which are all it is said to have, lie in the file `path`.

        Raises:
            StorageRefusedError: the store refuses for good, or has no such object.
            StorageUnavailableError: it failed for longer than the patience allows.
        """
        with path.open("wb") as file:
            file.truncate(size_bytes)

            def fetch(part: Part) -> None:
                self.persist("downloading", lambda: self._get_part(key, file.fileno(), part))
                on_bytes(part.size_bytes)

            self._each(fetch, cut(size_bytes, self.part_bytes))

    def _get_part(self, key: str, descriptor: int, part: Part) -> None:
        last = part.start + part.size_bytes - 1
        answer = self.store.client.get_object(
            Bucket=self.store.bucket, Key=key, Range=f"bytes={part.start}-{last}"
        )
        position = part.start
        for piece in answer["Body"].iter_chunks(COPY_BYTES):
            position += os.pwrite(descriptor, piece, position)
        if position != last + 1:
            raise StorageUnavailableError("the object store gave back fewer bytes than it has")

    def _each(self, work: Callable[[Part], T], parts: list[Part]) -> list[T]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="part") as pool:
            try:
                return list(pool.map(work, parts))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _waits() -> Iterator[float]:
    wait_seconds = 0.5
    while True:
        yield wait_seconds
        wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)
