"""Runs what docker-compose.yml says, outside a container."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests import compose_file
from tests.compose_file import ROOT

SERVICES = compose_file.services()
IN_IMAGE = "/opt/ghosted/share/"
READY_SECONDS = 60


@dataclass(frozen=True)
class Outside:
    """A service's command, its environment and its health check, with other addresses and folders."""

    name: str
    folder: Path
    changed: Mapping[str, str] = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What the compose file gives the process, and nothing of ours but where things are."""
        given = compose_file.environment(SERVICES[self.name])
        given |= {key: value for key, value in self.changed.items() if key in given}
        found = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        return {**found, **given, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> subprocess.Popen[bytes]:
        """The command runs, in a folder that is not the project's."""
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self._here(SERVICES[self.name]["command"]),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self) -> int:
        """The exit code of a command that ends by itself."""
        with ended(self.start()) as process:
            return process.wait(READY_SECONDS)

    def healthy(self) -> bool:
        """Whether the health check says so."""
        kind, *command = SERVICES[self.name]["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            self._here(command), check=False, env=self.environment, capture_output=True, timeout=30
        )
        return done.returncode == 0

    def _here(self, command: Sequence[str]) -> list[str]:
        places = {"python": sys.executable}
        return [places.get(word, word.replace(IN_IMAGE, f"{ROOT}/docker/")) for word in command]


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Nothing of the process's session is left afterwards, whatever happens in the block."""
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def stop(process: subprocess.Popen[bytes], name: str) -> int:
    """The exit code of a service that was asked to end, within the time that docker gives it."""
    process.send_signal(signal.SIGTERM)
    return process.wait(compose_file.seconds(SERVICES[name]["stop_grace_period"]))
