"""Processes of the service, as an operator starts them, and signals for them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

from services.embedded.ports import find_free
from services.embedded.process import processes_in
from tests.faults.stage import BEHAVIOUR
from worker.config import WorkerSettings

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
# The worker with a stage that needs no torch, for jobs that ask for it.
WORKER = "tests.faults.worker_main"


def variables(settings: WorkerSettings) -> dict[str, str]:
    """The environment by which a process gets `settings`."""
    values = settings.model_dump(exclude_none=True)
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in values.items()
    }
    named = {f"GHOSTED_{name.upper()}": value for name, value in plain.items()}
    return {**os.environ, **named, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Process:
    """One process with its log; a worker has a scratch folder too."""

    popen: "subprocess.Popen[bytes]"
    log: Path
    scratch: Path

    def kill(self) -> None:
        """The process, and it alone, was ended by SIGKILL."""
        self.popen.kill()
        self.popen.wait()

    def terminate(self, seconds: float = 60) -> int:
        """SIGTERM; the exit code."""
        self.popen.terminate()
        return self.popen.wait(seconds)

    def says(self, words: str) -> bool:
        """Whether its log holds `words`."""
        return words in self.log.read_text(errors="replace")

    def runner(self, seconds: float = 120) -> int:
        """The number of the job's process, once there is one that has begun its work."""
        return _soon(self._runner, seconds)

    def supervisor(self, seconds: float = 120) -> int:
        """The number of the process that supervises the job's."""
        return parent(self.runner(seconds))

    def kill_tree(self) -> None:
        """The worker and all that it started were ended by SIGKILL, the worker first."""
        tree = [self.popen.pid, *descendants(self.popen.pid)]
        for pid in tree:
            send(pid, signal.SIGKILL)
        self.popen.wait()

    def _runner(self) -> int | None:
        for pid in processes_in(self.scratch.resolve()):
            if "-m" in _arguments(pid):
                return pid
        return None


@dataclass
class Processes:
    """Starts processes; `end` ends them all."""

    environment: Mapping[str, str]
    folder: Path
    started: list[Process] = field(default_factory=list)

    def start(self, module: str, *, prefix: tuple[str, ...] = (), **settings: object) -> Process:
        """`python -m MODULE` with these settings beside those of the tests."""
        number = len(self.started)
        scratch = self.folder / f"scratch-{number}"
        changed = {f"GHOSTED_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {"GHOSTED_SCRATCH": str(scratch), **self.environment, **changed}
        log = self.folder / f"{module}-{number}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*prefix, sys.executable, "-m", module],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.started.append(Process(popen, log, scratch))
        return self.started[-1]

    def worker(self, *, prefix: tuple[str, ...] = (), **settings: object) -> Process:
        """A worker that takes jobs."""
        ready = self.folder / f"ready-{len(self.started)}"
        started = self.start(WORKER, prefix=prefix, ready_file=ready, **settings)
        _soon(ready.exists, 120)
        return started

    def relay(self, **settings: object) -> Process:
        """A relay and sweeper."""
        ready = self.folder / f"ready-{len(self.started)}"
        started = self.start("services.outbox", ready_file=ready, **settings)
        _soon(ready.exists, 120)
        return started

    def api(self) -> tuple[Process, str]:
        """An API, and where it is."""
        (port,) = find_free(1)
        return self.start("services.api", api_port=port), f"http://127.0.0.1:{port}"

    def runner_of(self, behaviour: str, seconds: float = 120) -> int:
        """The number of the process that plays the job of this behaviour, whichever worker has it."""
        return _soon(lambda: self._runner_of(behaviour), seconds)

    def _runner_of(self, behaviour: str) -> int | None:
        for said in self.folder.glob(f"scratch-*/ghosted-job-*/{BEHAVIOUR}"):
            # The folders of killed workers lie there too.
            with contextlib.suppress(FileNotFoundError):
                if said.read_text() == behaviour:
                    for pid in processes_in(said.parent.resolve()):
                        if "-m" in _arguments(pid):
                            return pid
        return None

    def end(self) -> None:
        """None of them runs."""
        trees = [[one.popen.pid, *descendants(one.popen.pid)] for one in self.started]
        for pid in (pid for tree in trees for pid in tree):
            # A stopped process would keep what is asked of it for later.
            send(pid, signal.SIGCONT)
        for one in self.started:
            one.popen.terminate()
        for one in self.started:
            try:
                one.popen.wait(30)
            except subprocess.TimeoutExpired:
                one.kill_tree()


def send(pid: int, number: signal.Signals) -> None:
    """The process has the signal, if it is there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def parent(pid: int) -> int:
    """The number of the parent, 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def descendants(pid: int) -> list[int]:
    """All that `pid` started, and what that started."""
    found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if parent(int(entry.name)) == pid]
    return [one for child in found for one in (child, *descendants(child))]


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:4]
    except FileNotFoundError:
        return []


def _soon(look: Callable[[], T | None], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, look
        time.sleep(0.05)
    return found
