"""How a stage takes over what an earlier run found, and leaves what it found itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from ghosted_core.errors import GhostedError
from ghosted_core.recorder import Logged, NullRecorder, Recorder
from ghosted_core.stage_cache.entry import Entry, TornEntryError, load_entry, save_entry
from ghosted_core.stage_cache.keys import key_of
from ghosted_core.stage_cache.port import NoStageCache, StageCache

Found = TypeVar("Found")


@dataclass(frozen=True)
class Keeping:
    """A stage cache, and the circumstances under which this run asks; see `keys.circumstances`."""

    cache: StageCache
    circumstances: Mapping[str, Any]
    recorder: Recorder

    @classmethod
    def nothing(cls) -> "Keeping":
        """Nothing is known and nothing is kept."""
        return cls(NoStageCache(), {}, NullRecorder())

    def recall(self, question: Mapping[str, Any], what: str, read: Callable[[Entry], Found]) -> Found | None:
        """What `read` makes of the entry for `question`; None if there is none that can be trusted.

        `what` names it to the user, in the plural.
        """
        key = key_of(self.circumstances, question)
        path = self.cache.get(key)
        if path is None:
            return None
        try:
            return read(load_entry(path, key))
        except (TornEntryError, ValidationError, GhostedError, LookupError, TypeError, ValueError) as error:
            self.say(
                f"What an earlier run kept of the {what} is damaged ({type(error).__name__}): "
                "it is ignored and computed anew.",
                level="warning",
            )
            return None

    def keep(self, question: Mapping[str, Any], what: str, entry: Entry) -> None:
        """`entry` is there for later runs, if there is room for it: work goes on without."""
        key = key_of(self.circumstances, question)
        try:
            self.cache.put(key, lambda path: save_entry(path, key, entry))
        except OSError as error:
            self.say(f"The {what} could not be kept for later runs: {error}.", level="warning")

    def say(self, message: str, level: str = "info") -> None:
        """A sentence for the job's log."""
        self.recorder.record(Logged(message, level))
