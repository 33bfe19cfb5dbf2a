"""The most memory that a model takes while it works, seen by a process that does nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from ghosted_core.evaluate.task_protocol import Message, Subject
from ghosted_core.evaluate.tasks import task_environment

MODULE = "ghosted_core.evaluate.memory_runner"
REQUEST = "request.json"
LONGEST_SECONDS = 1800


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
    with TemporaryDirectory(prefix="ghosted-memory-") as folder, _held_pipe() as pipe:
        (Path(folder) / REQUEST).write_text(request.model_dump_json())
        try:
            done = subprocess.run(
                # -P: nothing in the working folder may be imported.
                [sys.executable, "-P", "-m", MODULE],
                cwd=folder,
                env=task_environment(os.environ, Path(folder)),
                stdin=pipe,
                capture_output=True,
                check=True,
                timeout=LONGEST_SECONDS,
            )
            return Peak.model_validate_json(done.stdout)
        except (OSError, subprocess.SubprocessError, ValidationError):
            return None


@contextmanager
def _held_pipe() -> Iterator[int]:
    """The end of a pipe to read from; the other end is held, and closes if this process ends, however."""
    out, into = os.pipe()
    try:
        yield out
    finally:
        os.close(into)
        os.close(out)
