"""The stage cache of a job's process: it has no credentials, so it asks its supervisor."""

from collections.abc import Callable
from pathlib import Path

from worker.protocol import Answer, Offered, Wanted
from worker.speaking import Speaker


class AskingStageCache:
    """A `StageCache` whose files pass through `folder`."""

    def __init__(self, folder: Path, speaker: Speaker) -> None:
        self._folder = folder
        self._speaker = speaker
        # Read by now, for what is taken over is copied: the disk holds one at a time.
        self._read = folder / "none"

    def get(self, key: str) -> Path | None:
        """The file that the supervisor fetched, until the next call; None if it found none, or is gone."""
        self._read.unlink(missing_ok=True)
        self._speaker.say(Wanted(wanted=key).model_dump())
        line = self._speaker.hear()
        if not line or not Answer.model_validate_json(line).found:
            return None
        self._read = self._folder / key
        return self._read

    def put(self, key: str, save: Callable[[Path], None]) -> None:
        """Write, and offer what was written; the supervisor takes it away while work goes on.

        Raises:
            OSError: the disk is full or refuses.
        """
        partial = self._folder / f"{key}.partial"
        try:
            save(partial)
            partial.replace(self._folder / key)
        finally:
            partial.unlink(missing_ok=True)
        self._speaker.say(Offered(offered=key).model_dump())
