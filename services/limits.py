"""How much one key may ask for. The counts lie in Redis, so that all processes of the API share them.

Redis away: requests pass, and a warning is logged. These limits keep one user from crowding out the
others; turning everyone away would do more harm than a minute without them. How many jobs of a key
may wait is counted in the database (`services.jobs.admission`), and holds without Redis.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from limits import RateLimitItem, RateLimitItemPerDay, RateLimitItemPerMinute
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.exceptions import RedisError

from services.config import Settings
from services.errors import TooManyJobsError, TooManyRequestsError

KEY_PREFIX = "ghosted:limits"
TIMEOUT_SECONDS = 0.5
# After a failure Redis is left alone for so long: a timeout for each request would be felt.
PAUSE_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refusal:
    """A limit was reached; in so many seconds it is worth to try again."""

    retry_after_seconds: int


class Limiter:
    """Counts what each key does against the limits of the settings; 0 in the settings means no limit."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        storage = RedisStorage(
            settings.redis_url.get_secret_value(),
            key_prefix=KEY_PREFIX,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
        )
        self._windows = SlidingWindowCounterRateLimiter(storage)
        self._requests = _item(RateLimitItemPerMinute, settings.requests_per_minute, "requests")
        self._failures = _item(RateLimitItemPerMinute, settings.failed_keys_per_minute, "failures")
        self._jobs = _item(RateLimitItemPerDay, settings.jobs_per_day, "jobs")
        self._clock = clock
        self._resume_at = 0.0

    def count_request(self, who: str) -> None:
        """One more request of `who` is counted.

        Raises:
            TooManyRequestsError: there were too many within a minute.
        """
        refusal = self._count(self._requests, who)
        if refusal is not None:
            raise TooManyRequestsError(
                "this key may send no more requests for now", retry_after_seconds=refusal.retry_after_seconds
            )

    def count_failure(self, address: str) -> None:
        """One more request without a valid key came from `address`.

        A valid key is never refused for it: many may share an address, behind a proxy or a router.

        Raises:
            TooManyRequestsError: there were too many within a minute.
        """
        refusal = self._count(self._failures, address)
        if refusal is not None:
            raise TooManyRequestsError(
                "too many requests without a valid key came from this address",
                retry_after_seconds=refusal.retry_after_seconds,
            )

    def count_job(self, who: str) -> None:
        """One more job of `who` is counted.

        Raises:
            TooManyJobsError: there were too many within a day.
        """
        refusal = self._count(self._jobs, who)
        if refusal is not None:
            raise TooManyJobsError(
                "this key may submit no more jobs for now", retry_after_seconds=refusal.retry_after_seconds
            )

    def _count(self, item: RateLimitItem | None, who: str) -> Refusal | None:
        if item is None or self._clock() < self._resume_at:
            return None
        try:
            if self._windows.hit(item, who):
                return None
            reset_at = self._windows.get_window_stats(item, who).reset_time
        except RedisError as error:
            self._resume_at = self._clock() + PAUSE_SECONDS
            logger.warning("limits are not kept for %g s: %s", PAUSE_SECONDS, type(error).__name__)
            return None
        return Refusal(max(1, math.ceil(reset_at - time.time())))


def _item(kind: type[RateLimitItem], amount: int, namespace: str) -> RateLimitItem | None:
    return kind(amount, namespace=namespace) if amount else None
