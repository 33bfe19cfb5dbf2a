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
from typing import IO, Self

from ghosted_core.recorder import Event
from services.leash import leashed
from worker.errors import RunnerCrashedError
from worker.protocol import LINE_LIMIT_BYTES, Ended, Fault, Message, Result, read_line

POLL_SECONDS = 0.02


class Child:
    """`python -m MODULE` with a request on stdin. As a context it leaves no process of the group behind.

    It dies with the thread that starts it.
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
        # A thread, because a request longer than the pipe is waits for the process to read.
        self._feeder = threading.Thread(
            target=self._feed, args=(request.model_dump_json().encode(),), daemon=True
        )
        self._feeder.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._pipe.close()
        self._feeder.join()

    def _feed(self, request: bytes) -> None:
        # A pipe and not a file: what was read from it is gone, and the request may hold a token.
        if self._process.stdin is None:
            raise RunnerCrashedError("the job's process has no pipe to read from")
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(request)

    @property
    def pid(self) -> int:
        """The process number, which is that of the group."""
        return self._process.pid

    def listen(self, on_event: Callable[[Event], None]) -> Ended:
        """Hand on each event until the process ends; how it ended.

        Raises:
            RunnerCrashedError: it wrote something that is not of the protocol.
        """
        last: Result | Fault | None = None
        while line := self._pipe.readline(LINE_LIMIT_BYTES):
            if not line.endswith(b"\n"):
                raise RunnerCrashedError("the job's process wrote half a line, or one without end")
            said = read_line(line)
            if isinstance(said, Result | Fault):
                last = said
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
        if self._process.stdout is None:
            raise RunnerCrashedError("the job's process has no pipe")
        return self._process.stdout
