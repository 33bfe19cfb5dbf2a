"""One part as a child process: started on a leash, logged to a file, watched, stopped without remains."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.embedded.errors import PartDiedError, PartNotReadyError
from services.embedded.interrupts import deferred_interrupts
from services.embedded.users import User
from services.leash import leashed

LOG_TAIL_BYTES = 2000
POLL_SECONDS = 0.05
KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Escalation:
    """A signal, and how long to wait for its effect before the next one."""

    signal: signal.Signals
    seconds: float


@dataclass(frozen=True)
class Command:
    """How a part is run. Nothing secret belongs in `arguments`: every user can read them.

    `folder` is the working folder and the part's alone: whatever still runs in it after a stop is
    a remainder of the part.
    """

    part: str
    arguments: tuple[str, ...]
    folder: Path
    log: Path
    user: User | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    death_signal: signal.Signals = signal.SIGKILL
    escalation: tuple[Escalation, ...] = ()


class NotReadyError(Exception):
    """A probe's answer: not yet, and why."""


class Child:
    """A running part."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The program runs in a session of its own, where no Ctrl-C of the terminal reaches it."""
        descriptor = os.open(self.command.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with deferred_interrupts(), os.fdopen(descriptor, "wb") as log:
            self._process = subprocess.Popen(
                [*_leashed(self.command), *self.command.arguments],
                cwd=self.command.folder,
                env=_environment(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The process number, None before the start."""
        return self._process.pid if self._process else None

    def exit_code(self) -> int | None:
        """How the program ended (negative: by that signal), None while it runs or before its start."""
        return self._process.poll() if self._process else None

    def check(self) -> None:
        """Raise PartDiedError if the program has ended."""
        code = self.exit_code()
        if code is not None:
            raise PartDiedError(f"{self.command.part} {_ending(code)}.\n{self._log_tail()}")

    def wait(self, timeout_seconds: float) -> int:
        """The exit code of a program that ends by itself.

        Raises:
            PartNotReadyError: it still runs after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while (code := self.exit_code()) is None:
            if time.monotonic() > deadline:
                raise PartNotReadyError(f"{self.command.part} did not end within {timeout_seconds:.0f} s.")
            time.sleep(POLL_SECONDS)
        return code

    def wait_ready(self, probe: Callable[[], None], timeout_seconds: float) -> None:
        """`probe` returned once without NotReadyError.

        Raises:
            PartDiedError: the program ended first.
            PartNotReadyError: it did not happen within `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self.check()
            try:
                return probe()
            except NotReadyError as reason:
                if time.monotonic() > deadline:
                    raise PartNotReadyError(
                        f"{self.command.part} was not ready within {timeout_seconds:.0f} s: {reason}\n"
                        f"{self._log_tail()}"
                    ) from reason
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Neither the program nor any process in its folder runs any more."""
        with deferred_interrupts():
            for step in self.command.escalation:
                if self._signal_and_wait(step):
                    break
            else:
                self._signal_and_wait(Escalation(signal.SIGKILL, KILL_SECONDS))
            end_processes_in(self.command.folder)

    def _signal_and_wait(self, step: Escalation) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        self._process.send_signal(step.signal)
        try:
            self._process.wait(step.seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _log_tail(self) -> str:
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").strip()
        return f"Its log ends with:\n{tail}" if tail else "Its log is empty."


def _leashed(command: Command) -> list[str]:
    user = command.user or User(-1, -1)
    return leashed(command.death_signal, uid=user.uid, gid=user.gid)


def _environment(command: Command) -> dict[str, str]:
    """Nothing of ours: a part must not read our settings, nor files in the user's home."""
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(command.folder), "LC_ALL": "C"}
    return base | dict(command.environment)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def processes_in(folder: Path) -> tuple[int, ...]:
    """Processes whose working folder is `folder` or lies in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            working = (entry / "cwd").readlink()
        except OSError:
            continue  # Ended meanwhile, or another user's.
        if working == folder or folder in working.parents:
            found.append(int(entry.name))
    return tuple(pid for pid in found if pid != os.getpid())


def end_processes_in(folder: Path, *, patience_seconds: float = 2.0) -> None:
    """No process works in `folder` any more.

    PostgreSQL's helpers leave by themselves when the first process is gone, and so do the parts of
    a parent that was killed; those get `patience_seconds`, then SIGKILL.
    """
    deadline = time.monotonic() + patience_seconds
    while remaining := processes_in(folder.resolve()):
        if time.monotonic() > deadline:
            for pid in remaining:
                _kill(pid)
        if time.monotonic() > deadline + KILL_SECONDS:
            return
        time.sleep(POLL_SECONDS)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
