"""The side of the protocol that runs in the job's process."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, TextIO, TypeVar

from ghosted_core.errors import GhostedError
from ghosted_core.recorder import Event, event_to_json
from worker.protocol import ExitCode, Fault, Message, Moved

Request = TypeVar("Request", bound=Message)


class Speaker:
    """Writes to the supervisor and hears its answers; a `Recorder`."""

    def __init__(self, pipe: TextIO, answers: BinaryIO) -> None:
        self._pipe = pipe
        self._answers = answers

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

    def hear(self) -> bytes:
        """The supervisor's next line; empty once it has no more to say."""
        return self._answers.readline()


def take_pipes() -> Speaker:
    """A speaker on what were stdin and stdout.

    From now on whatever prints, prints to stderr, and whatever reads, finds nothing. Libraries print
    also from C: the descriptors themselves are replaced. Processes that this one starts do not
    inherit the pipes.
    """
    sys.stdout.flush()
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    answers = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return Speaker(pipe, answers)


def converse(request_type: type[Request], work: Callable[[Request, Speaker], None]) -> ExitCode:
    """Read the request, the first line on stdin, do the work, say how it ended.

    An exception that is none of ours passes through: its trace on stderr and the exit code of a
    crash tell more than any line.
    """
    speaker = take_pipes()
    request = request_type.model_validate_json(speaker.hear())
    try:
        work(request, speaker)
    except GhostedError as error:
        # The supervisor has it logged; users are told the rest.
        sys.stderr.write(error.output)
        speaker.say({"error": Fault.of(error).model_dump()})
        return ExitCode.TRANSIENT if error.retryable else ExitCode.REFUSED
    speaker.say({"result": {}})
    return ExitCode.OK
