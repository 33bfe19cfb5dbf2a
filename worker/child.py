"""A fresh interpreter for one piece of work, in a process group of its own."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from services.leash import leashed
from worker.errors import RunnerCrashedError
from worker.protocol import (
    LINE_LIMIT_BYTES,
    Answer,
    Ended,
    Fault,
    Message,
    Offered,
    Result,
    Said,
    Wanted,
    read_line,
)

POLL_SECONDS = 0.02


class Stages(Protocol):
    """What stages found, by keys; files are exchanged through a folder that both sides know."""

    def fetch(self, key: str) -> bool:
        """Whether what was kept under `key` now lies in the folder."""

    def take(self, key: str) -> None:
        """What lies in the folder under `key` is kept, if it can be."""


class NothingKept:
    """Knows nothing and takes nothing."""

    def fetch(self, _key: str) -> bool:
        """No."""
        return False

    def take(self, _key: str) -> None:
        """Do nothing."""


NOTHING_KEPT = NothingKept()


class Child:
    """`python -m MODULE`, which gets `request` once it is listened to.

    As a context it leaves no process of the group behind. It dies with the thread that starts it.
    """

    def __init__(
        self,
        module: str,
        request: Message,
        *,
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        stop_seconds: float,
    ) -> None:
        self._stop_seconds = stop_seconds
        self._lock = threading.Lock()
        self._request = request
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                # -P: the working folder holds a stranger's files and must not be imported from.
                [*leashed(signal.SIGKILL), sys.executable, "-P", "-m", module],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for pipe in (self._pipe, self._answers):
            # What was not flushed has no reader any more.
            with suppress(BrokenPipeError):
                pipe.close()

    @property
    def pid(self) -> int:
        """The process number, which is that of the group."""
        return self._process.pid

    def listen(self, on_event: Callable[[Said], None], stages: Stages = NOTHING_KEPT) -> Ended:
        """Hand on each event and answer from `stages` until the process ends; how it ended.

        Raises:
            RunnerCrashedError: it wrote something that is not of the protocol. Half a line at the end is
                what a killed process leaves behind: how that ended is told instead.
        """
        self._send(self._request)
        last: Result | Fault | None = None
        while line := self._pipe.readline(LINE_LIMIT_BYTES):
            if not line.endswith(b"\n"):
                return Ended(None, self._broken_off(line))
            said = read_line(line)
            if isinstance(said, Result | Fault):
                last = said
            elif isinstance(said, Wanted):
                self._send(Answer(found=stages.fetch(said.wanted)))
            elif isinstance(said, Offered):
                stages.take(said.offered)
            else:
                on_event(said)
        return Ended(last, self._finish())

    def stop(self) -> None:
        """No process of the group runs: SIGTERM first, SIGKILL after `stop_seconds`. From any thread."""
        with self._lock:
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                self._wait_exited(self._stop_seconds)
                self._reap()

    def _send(self, message: Message) -> None:
        """One line to the process; lost if it has ended, which its own pipe will tell."""
        with suppress(BrokenPipeError):
            self._answers.write(message.model_dump_json().encode() + b"\n")
            self._answers.flush()

    def _broken_off(self, line: bytes) -> int:
        """The exit code of the process that ended within `line`."""
        if len(line) >= LINE_LIMIT_BYTES:
            raise RunnerCrashedError("the job's process wrote a line without end")
        exit_code = self._finish()
        if exit_code == 0:
            raise RunnerCrashedError("the job's process wrote half a line")
        return exit_code

    def _finish(self) -> int:
        """The exit code once the process has ended by itself or was stopped."""
        self._wait_exited(math.inf)
        with self._lock:
            if self._process.returncode is None:
                self._reap()
        return self._process.wait()

    def _reap(self) -> None:
        # While the first process is not waited for, its number cannot become that of a stranger's
        # group. So the rest of the group, which may outlive it, is ended before the wait.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _wait_exited(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not self._has_exited() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _has_exited(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True  # Another thread has waited for it.

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    @property
    def _pipe(self) -> IO[bytes]:
        return _there(self._process.stdout)

    @property
    def _answers(self) -> IO[bytes]:
        return _there(self._process.stdin)


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RunnerCrashedError("the job's process has no pipe")
    return pipe
