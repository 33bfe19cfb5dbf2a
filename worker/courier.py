"""The process that carries a checkpoint to the object store and back: `python -m worker.courier`.

A process of its own, because nothing else ends a transfer at once, whatever it hangs in. Of a job's
processes it alone has credentials: those of the object store, in its environment.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Literal

from services.artifacts.connection import Patience
from services.artifacts.manifest import Manifest
from services.artifacts.storage import open_store
from services.artifacts.transfers import Carrier
from services.config import StoreSettings
from worker.delivery import read_back, upload
from worker.protocol import ExitCode, Message, Moved
from worker.speaking import Speaker, converse

PROGRESS_SECONDS = 0.2


class DeliverRequest(Message):
    """Which files go from `folder` to `prefix`, and where they come back to."""

    prefix: str
    folder: Path
    back: Path
    manifest: Manifest


def deliver(request: DeliverRequest, speaker: Speaker) -> None:
    """The files lie in the store, and came back from it unchanged. The stage `verify` goes on.

    Raises:
        StorageUnavailableError: the store did not answer for too long, or refuses.
        UploadChangedError: it lists or gave back something else.
    """
    settings = StoreSettings()
    store = open_store(settings, Patience(answer_seconds=settings.s3_answer_seconds))
    carrier = Carrier(store, settings.s3_part_bytes, settings.s3_patience_seconds)
    files, total = request.manifest.files, request.manifest.total_bytes
    upload(carrier, request.prefix, request.folder, files, BytesMeter(speaker, "upload", total))
    read_back(carrier, request.prefix, request.back, files, BytesMeter(speaker, "verify", total))


class BytesMeter:
    """Begins a stage and tells how far it is; may be called from several threads."""

    def __init__(self, speaker: Speaker, stage: Literal["upload", "verify"], total: int) -> None:
        self._speaker = speaker
        self._stage = stage
        self._total = total
        self._done = 0
        self._due = 0.0
        self._lock = threading.Lock()
        self(0)

    def __call__(self, size_bytes: int) -> None:
        """`size_bytes` more have arrived."""
        with self._lock:
            self._done += size_bytes
            if time.monotonic() >= self._due or self._done == self._total:
                self._due = time.monotonic() + PROGRESS_SECONDS
                self._speaker.move(Moved(stage=self._stage, done=self._done, total=self._total))


def main() -> ExitCode:
    """Carry what stdin names."""
    return converse(DeliverRequest, deliver)


if __name__ == "__main__":
    sys.exit(main())
