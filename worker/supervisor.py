"""One attempt at one job, from the claim to the end. Never imports torch."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import SecretStr, ValidationError
from structlog.contextvars import bound_contextvars

from ghosted_core.errors import GhostedError, InvalidSpecError
from ghosted_core.spec import JobSpec
from services.artifacts.manifest import ManifestFile, attempt_prefix
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.errors import DatabaseUnavailableError, LeaseLostError, WorkerLostError
from services.jobs import attempts
from services.jobs.attempts import Claimed, NewArtifact
from services.jobs.failures import Failure, failure_of
from services.sealing import SecretBox
from services.telemetry import NoTracing, Tracing
from worker.child import Child
from worker.config import WorkerSettings
from worker.delivery import describe, read_back, upload
from worker.ending import conclude, conclude_stopped
from worker.environment import job_environment
from worker.errors import RunnerCrashedError, StoppedError
from worker.heart import Heart
from worker.ledger import Ledger
from worker.protocol import Ended, Fault, Message, Result, RunRequest, VerifyRequest
from worker.scratch import Scratch, open_scratch
from worker.stages import StageSpans
from worker.texts import TextShelf, fetch_uploads

LOG_TAIL_BYTES = 4000
# What a shell reports for a process that was killed; the kernel's memory killer looks like this.
SHELL_KILLED = 137

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tools:
    """What a worker has and its jobs' processes have not."""

    settings: WorkerSettings
    database: Database
    store: ArtifactStore
    shutdown: threading.Event
    tracing: Tracing = field(default_factory=NoTracing)


class AttemptFailedError(Exception):
    """The attempt ended without a result, for the reason in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def supervise(tools: Tools, job_id: UUID) -> None:
    """The job has ended, waits for another attempt, or belongs to another worker."""
    with tools.database.write() as session:
        lease_seconds = tools.settings.lease_seconds
        claimed = attempts.claim(session, job_id, lease_seconds=lease_seconds, worker=worker_name())
    if claimed is None:
        logger.info("job %s is not to be had: it runs elsewhere or has ended", job_id)
        return
    ids: dict[str, str | int] = {"job_id": str(job_id), "attempt": claimed.fence.attempt}
    named = {f"ghosted.{name}": value for name, value in ids.items()}
    try:
        with (
            tools.tracing.span("attempt", kind="consumer", parent=claimed.traceparent, attributes=named),
            bound_contextvars(**ids),
            open_scratch(tools.settings.scratch) as scratch,
            Heart(tools.database, claimed, tools.settings, tools.shutdown) as heart,
        ):
            Attempt(tools, claimed, scratch, heart).run()
    except LeaseLostError:
        logger.warning("job %s: attempt %d lost its lease", job_id, claimed.fence.attempt)
    except DatabaseUnavailableError:
        # The lease runs out, and the sweeper gives the job to whoever reaches the database.
        logger.error("job %s: attempt %d lost the database", job_id, claimed.fence.attempt)  # noqa: TRY400


def worker_name() -> str:
    """This worker, for people who look for it."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Attempt:
    """The steps between claim and end."""

    def __init__(self, tools: Tools, claimed: Claimed, scratch: Scratch, heart: Heart) -> None:
        self.tools = tools
        self.claimed = claimed
        self.scratch = scratch
        self.heart = heart
        self.spans = StageSpans(tools.tracing)
        self.ledger = Ledger(tools.database, claimed.fence, scratch.folder, self.spans)
        self.prefix = attempt_prefix(claimed.fence.job_id, claimed.fence.attempt)

    def run(self) -> None:
        """Work, then write down how it ended.

        Raises:
            LeaseLostError: another attempt owns the job; nothing of this one counts.
            DatabaseUnavailableError: nothing can be written down.
        """
        try:
            artifact = self._traced_work()
        except StoppedError as stopped:
            conclude_stopped(self.ledger, stopped.reason)
        except AttemptFailedError as failed:
            self._log_output()
            conclude(self.ledger, failed.failure, self.tools.settings)
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except GhostedError as error:
            conclude(self.ledger, failure_of(error, stage=self.ledger.stage), self.tools.settings)
        else:
            self.ledger.write(lambda session, fence: attempts.finish_succeeded(session, fence, artifact))

    def _traced_work(self) -> NewArtifact:
        try:
            return self._work()
        finally:
            self.spans.end()

    def _work(self) -> NewArtifact:
        self._compress()
        manifest = describe(self.scratch.checkpoint)
        self._upload(manifest.files)
        self._verify(manifest.files)
        # The last look before the commit: a cancellation up to here is obeyed.
        self.heart.check()
        return NewArtifact(
            prefix=self.prefix,
            manifest=manifest.model_dump(mode="json"),
            total_bytes=manifest.total_bytes,
            keep_days=self.tools.settings.artifact_days,
        )

    def _compress(self) -> None:
        try:
            spec = JobSpec.model_validate(self.claimed.spec)
        except ValidationError as error:
            raise InvalidSpecError("the stored spec is not one that this version understands") from error
        settings = self.tools.settings
        request = RunRequest(
            spec=spec,
            out=self.scratch.checkpoint,
            cache=settings.cache,
            device=settings.device,
            uploads=fetch_uploads(
                spec, TextShelf(self.tools.database, self.tools.store), self.scratch.folder / "texts"
            ),
            hub_token=self._hub_token(),
        )
        self._run_child("worker.runner", request)

    def _hub_token(self) -> SecretStr | None:
        sealed = self.claimed.hub_token
        if sealed is None:
            return None
        box = SecretBox.of(self.tools.settings.secret_key)
        token = box.open(sealed, self.claimed.fence.job_id)
        self.ledger.hide(token.get_secret_value())
        return token

    def _upload(self, files: tuple[ManifestFile, ...]) -> None:
        with self._stage("upload", files) as on_file:
            upload(self.tools.store, self.prefix, self.scratch.checkpoint, files, on_file)

    def _verify(self, files: tuple[ManifestFile, ...]) -> None:
        with self._stage("verify", files) as on_file:
            read_back(self.tools.store, self.prefix, self.scratch.read_back, files, on_file)
            request = VerifyRequest(folder=self.scratch.read_back, device=self.tools.settings.device)
            self._run_child("worker.verifier", request)

    @contextmanager
    def _stage(self, name: str, files: tuple[ManifestFile, ...]) -> Iterator["StageMeter"]:
        total = sum(file.size_bytes for file in files)
        self.ledger.begin(name, total=total, unit="bytes")
        started = time.monotonic()
        yield StageMeter(name, self.ledger, self.heart)
        self.ledger.finished(name, time.monotonic() - started)

    def _run_child(self, module: str, request: Message) -> None:
        """The process has ended well.

        Raises:
            StoppedError: it was stopped.
            AttemptFailedError: it ended otherwise.
        """
        child = Child(
            module,
            request,
            folder=self.scratch.folder,
            log=self.scratch.log,
            environment=job_environment(os.environ, self.scratch.folder),
            stop_seconds=self.tools.settings.stop_seconds,
        )
        with child, self.heart.watching(child):
            ended = self._listen(child)
        if not (ended.exit_code == 0 and isinstance(ended.last, Result)):
            raise AttemptFailedError(self._failure(ended))

    def _listen(self, child: Child) -> Ended:
        try:
            return child.listen(self.ledger.record)
        except RunnerCrashedError:
            # Half a line is what a stopped process leaves behind.
            self.heart.check()
            raise

    def _failure(self, ended: Ended) -> Failure:
        stage = self.ledger.stage
        if isinstance(ended.last, Fault):
            said = ended.last
            return Failure(said.code, self.ledger.public(said.message), said.advice, stage, said.retryable)
        if ended.exit_code < 0 or ended.exit_code == SHELL_KILLED:
            return failure_of(WorkerLostError("the job's process was killed"), stage=stage)
        crash = RunnerCrashedError(f"the job's process ended with exit code {ended.exit_code}")
        return failure_of(crash, stage=stage)

    def _log_output(self) -> None:
        """What the processes printed goes to the worker's log: users are told in our own words."""
        if not self.scratch.log.exists():
            return
        tail = self.scratch.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        if tail:
            tail = self.ledger.without_secrets(tail)
            logger.warning("job %s: its process printed:\n%s", self.claimed.fence.job_id, tail)


class StageMeter:
    """Counts the bytes of the files that are done, and stops the attempt between two of them if need be."""

    def __init__(self, stage: str, ledger: Ledger, heart: Heart) -> None:
        self._stage = stage
        self._ledger = ledger
        self._heart = heart
        self._done = 0

    def __call__(self, file: ManifestFile) -> None:
        """`file` is done."""
        self._heart.check()
        self._done += file.size_bytes
        self._ledger.progress(self._stage, self._done)
