"""Benchmark tasks of lm-evaluation-harness, run in a process of their own. This side is free of it."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from pydantic import ValidationError

from ghosted_core.errors import (
    GhostedError,
    HarnessError,
    HarnessMissingError,
    InvalidSpecError,
    TaskDataError,
    UnknownTaskError,
)
from ghosted_core.evaluate.own_process import process_of_ours
from ghosted_core.evaluate.task_protocol import (
    LINE_LIMIT_BYTES,
    SAID,
    Known,
    Refused,
    Said,
    Subject,
    TaskRequest,
)
from ghosted_core.spec import HarnessTask, metric_key

MODULE = "ghosted_core.evaluate.task_runner"
LAST_WORDS_BYTES = 2000
FAULT_TYPE = re.compile(r"^(?:\w+\.)*(\w{1,60}(?:Error|Exception))\b", re.MULTILINE)
# What the process says of itself; any other fault is a crash.
FAULTS: Mapping[str, type[GhostedError]] = {
    error.code: error for error in (UnknownTaskError, TaskDataError, HarnessMissingError)
}


@dataclass(frozen=True)
class TaskPlace:
    """Where tasks are run: `data` holds their items (see `task_data`), `scratch` all that they leave."""

    data: Path | None
    scratch: Path


def check_tasks(tasks: Sequence[HarnessTask], place: TaskPlace, bounded: Iterable[str] = ()) -> None:
    """Return if all `tasks` can be loaded: before hours of work, not after.

    And if they have the metrics `bounded`, as far as the harness knows.

    Raises:
        InvalidSpecError: no task has such a metric.
        UnknownTaskError: the harness has no such task.
        TaskDataError: the items of one cannot be had.
        HarnessMissingError: it is not installed.
        HarnessError: it crashed.
    """
    with _started(_request(tasks, None, place), place) as lines:
        known = [line for line in lines if isinstance(line, Known)]
    for metric in bounded:
        _check_metric(metric, known)


def _check_metric(metric: str, known: Iterable[Known]) -> None:
    there: list[str] = []
    for task in known:
        ending = f"_{metric_key(task.task)}"
        if metric.endswith(ending):
            if task.metrics is None:
                return
            there += [f"{metric_key(name)}{ending}" for name in task.metrics]
    if metric not in there:
        raise InvalidSpecError(
            f"The gate bounds '{metric}', which no task has.",
            advice=f"Bound {' or '.join(there)}; the ending is the task's name.",
        )


def run_tasks(
    tasks: Sequence[HarnessTask], subject: Subject, place: TaskPlace
) -> "contextlib.AbstractContextManager[Iterator[Said]]":
    """All that the harness says while it runs `tasks`: first how many items there are.

    Leaving the context ends its process.

    Raises:
        HarnessError: it crashed; what it said before that counts.
        GhostedError: as `check_tasks`, or a model could not be loaded.
    """
    return _started(_request(tasks, subject, place), place)


def _request(tasks: Sequence[HarnessTask], subject: Subject | None, place: TaskPlace) -> TaskRequest:
    if place.data is None:
        names = ", ".join(task.name for task in tasks)
        raise TaskDataError(f"There is no folder of task data to take the items of {names} from.")
    # Absolute, because the process works in another folder.
    return TaskRequest(tasks=tuple(tasks), data=place.data.expanduser().resolve(), subject=subject)


@contextlib.contextmanager
def _started(request: TaskRequest, place: TaskPlace) -> Iterator[Iterator[Said]]:
    place.scratch.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(dir=place.scratch, prefix=".tasks-", ignore_cleanup_errors=True) as folder,
        (Path(folder) / "log").open("w+b") as log,
        process_of_ours(MODULE, Path(folder), stdout=subprocess.PIPE, stderr=log) as process,
    ):
        _ask(process, request)
        yield _said(process, log)


def _ask(process: "subprocess.Popen[bytes]", request: TaskRequest) -> None:
    # A process that is gone already tells by its exit code; its pipe stays open, see the other side.
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.write(request.model_dump_json().encode() + b"\n")
            process.stdin.flush()


def _said(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> Iterator[Said]:
    pipe = process.stdout
    while pipe is not None and (line := pipe.readline(LINE_LIMIT_BYTES)):
        said = _read(line)
        if isinstance(said, Refused):
            raise _refusal(said)
        yield said
    if process.wait():
        words = _last_words(log)
        raise HarnessError(f"The harness ended with code {process.returncode}{_fault(words)}.", output=words)


def _read(line: bytes) -> Said | Refused:
    try:
        return SAID.validate_json(line)
    except ValidationError as error:
        raise HarnessError("The harness's process wrote a line that is not of the protocol.") from error


def _refusal(said: Refused) -> GhostedError:
    return FAULTS.get(said.code, HarnessError)(said.message, advice=said.advice)


def _last_words(log: IO[bytes]) -> str:
    """The end of what it printed, which its exception is part of."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
    return log.read().decode(errors="replace").strip()


def _fault(words: str) -> str:
    """The type of the exception that a traceback ends with, in brackets."""
    types = FAULT_TYPE.findall(words)
    return f" ({types[-1]})" if types else ""
