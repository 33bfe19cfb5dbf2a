"""The side of the protocol that runs in the job's process."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

from ghosted_core.errors import GhostedError
from ghosted_core.recorder import Event, event_to_json
from worker.protocol import ExitCode, Fault, Message, Moved

Request = TypeVar("Request", bound=Message)


class Speaker:
    """Writes to the supervisor; a `Recorder`."""

    def __init__(self, pipe: TextIO) -> None:
        self._pipe = pipe

    def record(self, event: Event) -> None:
        """Tell the supervisor of `event`."""
        self.say(event_to_json(event))

    def move(self, moved: Moved) -> None:
        """Tell the supervisor of bytes that have arrived."""
        self.say({"event": type(moved).__name__, **moved.model_dump()})

    def say(self, body: dict[str, Any]) -> None:
        """Write one line, at once."""
        self._pipe.write(json.dumps(body, separators=(",", ":")) + "\n")
        self._pipe.flush()


def take_stdout() -> Speaker:
    """A speaker on what was stdout; whatever prints from now on, prints to stderr.

    Libraries print, also from C: the descriptor itself is replaced. Processes that this one starts
    do not inherit the pipe.
    """
    sys.stdout.flush()
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return Speaker(pipe)


def converse(request_type: type[Request], work: Callable[[Request, Speaker], None]) -> ExitCode:
    """Read the request from stdin, do the work, say how it ended.

    An exception that is none of ours passes through: its trace on stderr and the exit code of a
    crash tell more than any line.
    """
    speaker = take_stdout()
    request = request_type.model_validate_json(sys.stdin.buffer.read())
    try:
        work(request, speaker)
    except GhostedError as error:
        speaker.say({"error": Fault.of(error).model_dump()})
        return ExitCode.TRANSIENT if error.retryable else ExitCode.REFUSED
    speaker.say({"result": {}})
    return ExitCode.OK
