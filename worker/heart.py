"""Keeps the lease of a running attempt, and tells it when to stop."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from services.db.sessions import Database
from services.errors import LeaseLostError
from services.jobs import attempts, orders
from services.jobs.attempts import Claimed
from worker.child import Child
from worker.config import WorkerSettings
from worker.errors import StoppedError, StopReason

CLOCK_SECONDS = 0.5
# A database that does not answer holds its thread; the attempt does not wait longer for that.
PARTING_SECONDS = 2

logger = logging.getLogger(__name__)


class Heart:
    """Two threads beside the attempt. As a context it beats while the body runs.

    One speaks with the database, which may keep it waiting for as long as it likes; the other looks at
    the clock, so that an attempt whose lease ran out meanwhile stops all the same.
    `shutdown` is set when this worker is to end.
    """

    def __init__(
        self, database: Database, claimed: Claimed, settings: WorkerSettings, shutdown: threading.Event
    ) -> None:
        self._database = database
        self._fence = claimed.fence
        self._settings = settings
        self._shutdown = shutdown
        # The database's clock measures the deadline; only the distance is taken over to ours.
        until_expiry = (claimed.deadline_at - claimed.lease_expires_at).total_seconds()
        self._deadline = claimed.asked_at + settings.lease_seconds + until_expiry
        self._renewed = claimed.asked_at
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._ended = threading.Event()
        self._stirred = threading.Event()
        self._voice = threading.Thread(target=self._beat_until_ended, name="lease", daemon=True)
        self._clock = threading.Thread(target=self._watch_until_ended, name="clock", daemon=True)
        self.reason: StopReason | None = None

    def __enter__(self) -> Self:
        self._voice.start()
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._stirred.set()
        self._clock.join()
        self._voice.join(PARTING_SECONDS)

    def check(self) -> None:
        """Raise StoppedError if the attempt is to stop."""
        if self.reason is not None:
            raise StoppedError(self.reason)

    @contextmanager
    def watching(self, child: Child) -> Iterator[None]:
        """If the attempt is to stop during the body, `child` is stopped.

        Raises:
            StoppedError: it was.
        """
        with self._lock:
            self._child = child
        try:
            # A reason from before the child was known would otherwise go unheeded.
            self.check()
            yield
            self.check()
        finally:
            with self._lock:
                self._child = None

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(self._settings.orders_seconds):
            self._beat()

    def _watch_until_ended(self) -> None:
        while not self._ended.is_set():
            self._look_at_the_clock()
            with self._lock:
                if self.reason is not None and self._child is not None:
                    self._child.stop()
            self._stirred.wait(min(CLOCK_SECONDS, self._settings.orders_seconds))
            self._stirred.clear()

    def _beat(self) -> None:
        try:
            if self._asked_to_cancel():
                self._stop(StopReason.CANCELLED)
        except LeaseLostError:
            self._stop(StopReason.LEASE_LOST)
        except SQLAlchemyError as error:
            logger.warning("job %s: the lease cannot be kept: %s", self._fence.job_id, type(error).__name__)

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if now > self._renewed + self._settings.lease_seconds:
            # By now the sweeper may have given the job to another worker.
            self._stop(StopReason.LEASE_LOST)
        if now > self._deadline:
            self._stop(StopReason.DEADLINE)
        if self._shutdown.is_set():
            self._stop(StopReason.SHUTDOWN)

    def _asked_to_cancel(self) -> bool:
        if time.monotonic() < self._renewed + self._settings.heartbeat_seconds:
            with self._database.read() as session:
                return orders.cancel_requested(session, self._fence)
        before = time.monotonic()
        with self._database.write() as session:
            lease = attempts.renew_lease(session, self._fence, lease_seconds=self._settings.lease_seconds)
        self._renewed = before
        return lease.cancel_requested

    def _stop(self, reason: StopReason) -> None:
        if self.reason is None and not self._ended.is_set():
            logger.info("job %s: stopping the attempt: %s", self._fence.job_id, reason.value)
            self.reason = reason
            self._stirred.set()
