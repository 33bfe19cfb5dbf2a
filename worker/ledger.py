"""What an attempt writes about itself, under its fence."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError

from ghosted_core.recorder import (
    LayersChosen,
    Logged,
    MetricMeasured,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from services.db.sessions import Database, WriteSession
from services.jobs import attempts, reporting
from services.jobs.attempts import Fence
from worker.patience import patiently
from worker.protocol import Moved, Said
from worker.stages import StageSpans

T = TypeVar("T")

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.5
LOG_LIMIT = 1000
MESSAGE_LIMIT = 2000
DETAIL_LIMIT = 128


class Ledger:
    """Writes an attempt's events; remembers the stage it is in.

    `private` is a folder whose path users are not told; `patience_seconds` is how long a write waits for
    a database that is away: the length of the lease, since after that the attempt is another's.
    """

    def __init__(
        self,
        database: Database,
        fence: Fence,
        private: Path,
        spans: StageSpans,
        *,
        patience_seconds: float = 30,
    ) -> None:
        self._spans = spans
        self._database = database
        self._fence = fence
        self._private = private
        self._patience_seconds = patience_seconds
        self._last_number = 0
        self._progress_due = 0.0
        self._begun = 0.0
        self._moving = False
        self._logged = 0
        self._secrets: list[str] = []
        self.stage: str | None = None

    def write(self, action: Callable[[WriteSession, Fence], T]) -> T:
        """What `action` returned, in a transaction that was committed; it may have been, unheard, before.

        Raises:
            LeaseLostError: the attempt no longer owns the job.
            DatabaseUnavailableError: the database did not come back in time.
        """

        def once() -> T:
            with self._database.write() as session:
                return action(session, self._fence)

        return patiently(once, seconds=self._patience_seconds)

    def _report(self, action: Callable[[WriteSession, Fence], int]) -> None:
        """The job has one event more, and not two where the answer to the first commit was lost."""
        tries = count()

        def unless_there(session: WriteSession, fence: Fence) -> int:
            there = next(tries) and reporting.number_after(session, fence, self._last_number)
            return there or action(session, fence)

        self._last_number = self.write(unless_there)

    def begin(self, stage: str, *, total: int | None = None, unit: str = "tokens") -> None:
        """The job is at the beginning of `stage`."""
        self.stage = stage
        self._spans.begin(stage)
        self._begun = time.monotonic()
        self._progress_due = 0.0
        self._report(
            lambda session, fence: attempts.record_stage(session, fence, stage, total=total, unit=unit)
        )

    def progress(self, stage: str, done: int) -> None:
        """`done` of the stage is behind the job; told at most twice a second, if the database is there."""
        now = time.monotonic()
        if now >= self._progress_due:
            self._progress_due = now + PROGRESS_SECONDS
            # Not repeated: the next figure replaces this one, and the job's process waits meanwhile.
            with suppress(OperationalError), self._database.write() as session:
                attempts.record_progress(session, self._fence, stage, done)

    def finished(self, stage: str, seconds: float, peak_memory_bytes: int | None = None) -> None:
        """`stage` is over, after `seconds`."""
        self._spans.end()
        payload = {"stage": stage, "seconds": seconds, "peak_memory_bytes": peak_memory_bytes}
        self._event("stage_finished", payload)

    def finish_stage(self) -> None:
        """The stage that the job is in is over."""
        if self.stage is not None:
            self.finished(self.stage, time.monotonic() - self._begun)

    def record(self, event: Said) -> None:
        """Write down what the runner said."""
        if isinstance(event, StageStarted):
            self.begin(event.stage, total=event.total, unit=event.unit[:32])
        elif isinstance(event, StageProgressed):
            self.progress(event.stage, event.done)
        elif isinstance(event, StageFinished):
            self.finished(event.stage, event.seconds, event.peak_memory_bytes)
        elif isinstance(event, MetricMeasured):
            self._metric(event)
        elif isinstance(event, LayersChosen):
            self._event("layers_chosen", asdict(event))
        elif isinstance(event, Moved):
            self._moved(event)
        else:
            self._log(event)

    def public(self, text: str) -> str:
        """`text` without the private folder's path, and not endless."""
        return self.without_secrets(text.replace(str(self._private), "(scratch)"))[:MESSAGE_LIMIT]

    def hide(self, secret: str) -> None:
        """From now on `secret` stands in nothing that is told or logged."""
        self._secrets.append(secret)

    def without_secrets(self, text: str) -> str:
        """`text` with a stand-in for each hidden secret."""
        for secret in self._secrets:
            text = text.replace(secret, "(hidden)")
        return text

    def _moved(self, event: Moved) -> None:
        if event.stage != self.stage:
            if self._moving:
                self.finish_stage()
            self._moving = True
            self.begin(event.stage, total=event.total, unit="bytes")
        self.progress(event.stage, event.done)

    def _metric(self, event: MetricMeasured) -> None:
        name = event.name[:DETAIL_LIMIT]
        self._report(
            lambda session, fence: attempts.record_metric(session, fence, name, event.value, event.detail)
        )

    def _log(self, event: Logged) -> None:
        self._logged += 1
        if self._logged <= LOG_LIMIT:
            self._event("log", {"level": event.level[:16], "message": self.public(event.message)})
            self._keep_output(event)

    def _keep_output(self, event: Logged) -> None:
        """What a foreign program printed goes to the worker's log: users are told in our own words."""
        if event.output:
            printed = self.without_secrets(event.output)[-MESSAGE_LIMIT:]
            logger.warning("job %s: %s\n%s", self._fence.job_id, self.public(event.message), printed)

    def _event(self, kind: str, payload: dict[str, object]) -> None:
        self._report(lambda session, fence: attempts.record_event(session, fence, kind, payload))
