"""One attempt at one job, from the claim to the end. Never imports torch."""

import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import SecretStr, ValidationError
from structlog.contextvars import bound_contextvars

from ghosted_core.errors import CheckpointError, GhostedError, InvalidSpecError, QualityGateError
from ghosted_core.registry import NOTHING, Registry
from ghosted_core.spec import JobSpec
from services.artifacts.connection import HASTY
from services.artifacts.manifest import Manifest, attempt_prefix
from services.artifacts.stages import open_stages, stages_prefix
from services.artifacts.storage import ArtifactStore, open_store
from services.db.sessions import Database
from services.errors import DatabaseUnavailableError, LeaseLostError, WorkerLostError
from services.jobs.attempts import Claimed, NewArtifact
from services.jobs.excuses import EXCUSED_CAUSES
from services.jobs.failures import Failure, failure_of
from services.sealing import SecretBox
from services.telemetry import NoTracing, Tracing
from worker.child import NOTHING_KEPT, Child, Stages
from worker.claiming import claim
from worker.clearing import clear
from worker.config import WorkerSettings
from worker.courier import DeliverRequest
from worker.delivery import CHECKPOINT_MANIFEST, describe
from worker.ending import conclude, conclude_delivered, conclude_stopped
from worker.environment import courier_environment, job_environment
from worker.errors import RunnerCrashedError, StoppedError, StopReason
from worker.evidence import SHELL_KILLED, MemoryWatch, prefer_as_victim
from worker.heart import Heart
from worker.keeping import StageKeeper
from worker.ledger import Ledger
from worker.leftovers import discard
from worker.protocol import Ended, Fault, Message, Result, RunRequest, VerifyRequest
from worker.scratch import Scratch, open_scratch
from worker.stages import StageSpans
from worker.texts import TextShelf, fetch_uploads

LOG_TAIL_BYTES = 4000

logger = logging.getLogger(__name__)


def worker_name() -> str:
    """This process, for people who look for it."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class Tools:
    """What a worker has and its jobs' processes have not."""

    settings: WorkerSettings
    database: Database
    store: ArtifactStore
    shutdown: threading.Event
    # The name under which jobs are claimed, and the variables of which their processes get some.
    worker: str = field(default_factory=worker_name)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    tracing: Tracing = field(default_factory=NoTracing)
    # The operator's aliases.
    registry: Registry = NOTHING


class AttemptFailedError(Exception):
    """The attempt ended without a result, for the reason in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def supervise(tools: Tools, job_id: UUID) -> None:
    """The job has ended, waits for another attempt, or belongs to another worker."""
    claimed = claim(tools.database, tools.settings, job_id, worker=tools.worker)
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
        discard(tools.database, open_store(tools.settings, HASTY), claimed.fence)
    except DatabaseUnavailableError:
        # The lease runs out, and the sweeper gives the job to whoever reaches the database.
        logger.error("job %s: attempt %d lost the database", job_id, claimed.fence.attempt)  # noqa: TRY400


@dataclass(frozen=True)
class Delivered:
    """What lies in the store, and why it is no success: it missed its gate, or nothing."""

    artifact: NewArtifact
    missed: Failure | None


class Attempt:
    """The steps between claim and end."""

    def __init__(self, tools: Tools, claimed: Claimed, scratch: Scratch, heart: Heart) -> None:
        self.tools = tools
        self.claimed = claimed
        self.scratch = scratch
        self.heart = heart
        self.spans = StageSpans(tools.tracing)
        patience = tools.settings.lease_seconds
        self.ledger = Ledger(
            tools.database, claimed.fence, scratch.folder, self.spans, patience_seconds=patience
        )
        self.prefix = attempt_prefix(claimed.fence.job_id, claimed.fence.attempt)
        # Attempts before this one may have left something.
        self.may_have_uploaded = claimed.fence.attempt > 1

    def run(self) -> None:
        """Work, then write down how it ended.

        Raises:
            LeaseLostError: another attempt owns the job; nothing of this one counts.
            DatabaseUnavailableError: nothing can be written down.
        """
        try:
            delivered = self._traced_work()
            conclude_delivered(self.ledger, delivered.artifact, delivered.missed)
        except StoppedError as stopped:
            if stopped.reason is not StopReason.LEASE_LOST:
                self._clear()
            conclude_stopped(self.ledger, stopped.reason, self.tools.settings)
        except AttemptFailedError as failed:
            self._log_output()
            self._clear()
            conclude(self.ledger, failed.failure, self.tools.settings)
        except (LeaseLostError, DatabaseUnavailableError):
            # Not cleared here: the job may have succeeded without our hearing of it.
            raise
        except GhostedError as error:
            self._clear()
            conclude(self.ledger, failure_of(error, stage=self.ledger.stage), self.tools.settings)

    def _clear(self) -> None:
        """Before the end is written down: whoever sees that the job has ended finds nothing of it."""
        if self.may_have_uploaded:
            clear(self.tools.settings, self.claimed.fence)

    def _traced_work(self) -> Delivered:
        try:
            return self._work()
        finally:
            self.spans.end()

    def _work(self) -> Delivered:
        missed = self._compress()
        try:
            return Delivered(self._stored(), missed)
        except (CheckpointError, AttemptFailedError) as error:
            failure = error.failure if isinstance(error, AttemptFailedError) else failure_of(error)
            if missed is None or failure.code != CheckpointError.code:
                raise
            # A result that is bad enough, such as one without finite logits, cannot be loaded: the
            # gate that it missed says more about it than that.
            raise AttemptFailedError(missed) from error

    def _stored(self) -> NewArtifact:
        """The finished checkpoint, once it lies in the store and was read back."""
        manifest = describe(self.scratch.checkpoint, self.heart.check)
        self._deliver(manifest)
        self._verify()
        # The last look before the commit, which looks for a cancellation itself.
        self.heart.check()
        return NewArtifact(
            prefix=self.prefix,
            manifest=manifest.model_dump(mode="json"),
            total_bytes=manifest.total_bytes,
            keep_days=self.tools.settings.artifact_days,
        )

    def _compress(self) -> Failure | None:
        """A checkpoint is there; what is returned says which gate it missed, if the spec keeps such a one."""
        try:
            spec = JobSpec.model_validate(self.claimed.spec)
        except ValidationError as error:
            raise InvalidSpecError("the stored spec is not one that this version understands") from error
        settings = self.tools.settings
        request = RunRequest(
            spec=spec,
            out=self.scratch.checkpoint,
            cache=settings.cache,
            registry=self.tools.registry,
            device=settings.device,
            stages=self.scratch.stages,
            task_data=settings.task_data,
            uploads=fetch_uploads(
                spec,
                TextShelf.of(settings, self.tools.database, self.heart.check),
                self.scratch.folder / "texts",
            ),
            hub_token=self._hub_token(),
        )
        private = self.claimed.hub_token is not None
        prefix = stages_prefix(spec, self.claimed.owner_id, private=private)
        keeper = StageKeeper(
            open_stages(settings, prefix), self.scratch.stages, settings.stage_bytes, self.heart.check
        )
        try:
            self._run_child("worker.runner", request, stages=keeper)
        except AttemptFailedError as failed:
            if not self._keeps(spec, failed.failure):
                raise
            return failed.failure
        return None

    def _keeps(self, spec: JobSpec, failure: Failure) -> bool:
        """Whether a checkpoint that missed its gate is there and to be kept."""
        wanted = spec.evaluation is not None and spec.evaluation.on_miss == "keep"
        missed = failure.code == QualityGateError.code and not failure.retryable
        return wanted and missed and (self.scratch.checkpoint / CHECKPOINT_MANIFEST).is_file()

    def _hub_token(self) -> SecretStr | None:
        sealed = self.claimed.hub_token
        if sealed is None:
            return None
        box = SecretBox.of(self.tools.settings.secret_key)
        token = box.open(sealed, self.claimed.fence.job_id)
        self.ledger.hide(token.get_secret_value())
        return token

    def _deliver(self, manifest: Manifest) -> None:
        self.may_have_uploaded = True
        request = DeliverRequest(
            prefix=self.prefix, folder=self.scratch.checkpoint, back=self.scratch.read_back, manifest=manifest
        )
        environment = courier_environment(os.environ, self.scratch.folder, self.tools.settings)
        self._run_child("worker.courier", request, environment)

    def _verify(self) -> None:
        request = VerifyRequest(folder=self.scratch.read_back, device=self.tools.settings.device)
        self._run_child("worker.verifier", request)
        self.ledger.finish_stage()

    def _run_child(
        self,
        module: str,
        request: Message,
        environment: Mapping[str, str] | None = None,
        stages: Stages = NOTHING_KEPT,
    ) -> None:
        """The process has ended well. Its environment is that of a job's process unless another is given.

        Raises:
            StoppedError: it was stopped.
            AttemptFailedError: it ended otherwise.
        """
        memory = MemoryWatch.begin()
        child = Child(
            module,
            request,
            folder=self.scratch.folder,
            log=self.scratch.log,
            environment=environment or job_environment(self.tools.environment, self.scratch.folder),
            stop_seconds=self.tools.settings.stop_seconds,
        )
        prefer_as_victim(child.pid)
        with child, self.heart.watching(child):
            ended = self._listen(child, stages)
        if not (ended.exit_code == 0 and isinstance(ended.last, Result)):
            raise AttemptFailedError(self._failure(ended, memory))

    def _listen(self, child: Child, stages: Stages) -> Ended:
        try:
            return child.listen(self.ledger.record, stages)
        except RunnerCrashedError:
            # Half a line is what a stopped process leaves behind.
            self.heart.check()
            raise

    def _failure(self, ended: Ended, memory: MemoryWatch) -> Failure:
        stage = self.ledger.stage
        if isinstance(ended.last, Fault):
            said = ended.last
            if said.code in EXCUSED_CAUSES:
                # Only the service excuses an attempt: a process that could would be begun for ever.
                return failure_of(RunnerCrashedError("the job's process made up an excuse"), stage=stage)
            return Failure(said.code, self.ledger.public(said.message), said.advice, stage, said.retryable)
        if ended.exit_code < 0 or ended.exit_code == SHELL_KILLED:
            killed = WorkerLostError("the job's process was killed")
            return failure_of(memory.explain(ended.exit_code) or killed, stage=stage)
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
