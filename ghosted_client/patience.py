"""When a request is sent again, and how long to wait before: numbers only, no input or output."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ghosted_client.errors import ApiError, ClientError, ConnectionFailedError, TemporaryError

# A service that restarts is back within these waits.
WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
# A refusal that asks for more is handed on: whoever called knows better what to do meanwhile.
LONGEST_SECONDS = 60.0
# Another request with the same Idempotency-Key is being answered: ours will get the same answer.
BUSY_CODE = "idempotency_in_progress"


@dataclass(frozen=True)
class Patience:
    """How often a request is sent again, and how long a `Retry-After` may be to be obeyed."""

    waits_seconds: tuple[float, ...] = WAITS_SECONDS
    longest_seconds: float = LONGEST_SECONDS

    def wait(self, tries: int, error: ClientError) -> float | None:
        """Seconds until try number `tries` + 1; None where there is to be none.

        Never less than the service asks for.
        """
        if tries > len(self.waits_seconds) or not passing(error):
            return None
        asked = error.problem.retry_after_seconds if isinstance(error, ApiError) else None
        if asked is not None and asked > self.longest_seconds:
            return None
        return max(self.waits_seconds[tries - 1], asked or 0.0)


def passing(error: ClientError) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    return isinstance(error, ConnectionFailedError | TemporaryError) or error.code == BUSY_CODE


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that `Retry-After` asks for, given as such or as a date; None if it does not."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def settled(error: ClientError, tries: int, codes: Collection[str]) -> bool:
    """Whether `error` only says that an earlier try, whose answer was lost, has done the work."""
    return tries > 1 and error.code in codes
