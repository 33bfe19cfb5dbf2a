"""A span and a word in the logs for each stage of an attempt.

The job's process names its stages to the supervisor, which traces on its behalf: the process itself
reaches no collector and needs no address of one.
"""

from contextlib import ExitStack

from structlog.contextvars import bound_contextvars

from services.tallies import KNOWN_STAGES, OTHER
from services.telemetry import Tracing


class StageSpans:
    """The stage that an attempt is in, as the current span; used by one thread."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._open = ExitStack()

    def begin(self, stage: str) -> None:
        """`stage` runs; the one before, if it was not ended, has ended."""
        self.end()
        name = stage if stage in KNOWN_STAGES else OTHER
        self._open.enter_context(self._tracing.span(f"stage {name}", attributes={"ghosted.stage": name}))
        self._open.enter_context(bound_contextvars(stage=name))

    def end(self) -> None:
        """No stage runs."""
        self._open.close()
