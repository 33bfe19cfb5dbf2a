"""`ghosted up` as a user starts it: a process of its own, read line by line."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 90
# The installation's own settings, and what would put other servers in place of its parts.
SETTINGS = "GHOSTED_"


@dataclass(frozen=True)
class RunningService:
    """A service that told its address and key."""

    process: subprocess.Popen[str]
    url: str
    key: str
    data: Path

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `ghosted` command against it."""
        environment = {**clean_environment({}), "GHOSTED_URL": self.url, "GHOSTED_API_KEY": self.key}
        return subprocess.run(
            [sys.executable, "-m", "ghosted_cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=300,
        )

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Send the signal; exit code and what was still said."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1", **more}


def launch(data: Path, cache: Path, **more: str) -> subprocess.Popen[str]:
    """The process, without waiting for anything."""
    return subprocess.Popen(
        [sys.executable, "-m", "ghosted_cli", "up", "--data", str(data), "--cache", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment({"OMP_NUM_THREADS": "1", **more}),
    )


@contextmanager
def service(data: Path, cache: Path, **more: str) -> Iterator[RunningService]:
    """A service that is ready; it is gone afterwards."""
    process = launch(data, cache, **more)
    try:
        yield wait_ready(process, data)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def wait_ready(process: subprocess.Popen[str], data: Path) -> RunningService:
    """Read until it says how to submit a job."""
    said: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if line.startswith("Ctrl-C stops everything"):
            break
    text = "".join(said)
    address, key = re.search(r"address +(\S+)", text), re.search(r"key +(\S+)", text)
    assert address is not None, text
    assert key is not None, text
    return RunningService(process, address[1], key[1], data)
