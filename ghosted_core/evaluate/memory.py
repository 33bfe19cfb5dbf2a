"""The most memory that a model takes while it works, seen by a process that does nothing else."""

import subprocess

from pydantic import ValidationError

from ghosted_core.evaluate.asking import ask
from ghosted_core.evaluate.task_protocol import Message, Subject

MODULE = "ghosted_core.evaluate.memory_runner"
LONGEST_SECONDS, ANSWER_BYTES = 1800.0, 1 << 16


class PeakRequest(Message):
    """Which model, its one variant of `subject`, and what it is to do: as in `speed`."""

    subject: Subject
    prompt_tokens: int
    new_tokens: int


class Peak(Message):
    """The most memory in use while the model read a prompt and went on.

    `what` says what is counted, `without_model_bytes` how much of it was there before the model was:
    the interpreter and the libraries.
    """

    bytes: int
    without_model_bytes: int
    what: str


def peak_of(request: PeakRequest) -> Peak | None:
    """The peak of one model, in a fresh process, offline and without credentials; None if that failed."""
    try:
        said = ask(MODULE, request, seconds=LONGEST_SECONDS, longest_bytes=ANSWER_BYTES)
        return Peak.model_validate_json(said)
    except (OSError, subprocess.SubprocessError, ValidationError):
        return None
