"""Data folders that are gone afterwards, and processes that hold a stack."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.embedded import remove_stack
from services.embedded.home import ELSEWHERE, PREFIX
from services.embedded.process import processes_in

ROOT = Path(__file__).parents[3]
# The packages by path, so that another Python of the same version finds them too.
PYTHONPATH = os.pathsep.join([str(ROOT), sysconfig.get_path("platlib")])
HOLDER = Path(__file__).with_name("holder.py")


@pytest.fixture
def data_folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder that does not exist yet."""
    folder = tmp_path / "data"
    yield folder
    remove_stack(folder)


@dataclass(frozen=True)
class Holder:
    """A process of its own with a stack in `folder`."""

    process: "subprocess.Popen[str]"
    folder: Path

    def wait_ready(self) -> dict[str, Any]:
        """What it says about its stack once that is ready."""
        assert self.process.stdout is not None
        word, _, rest = self.process.stdout.readline().partition(" ")
        assert word == "READY", self.process.communicate()[1]
        found: dict[str, Any] = json.loads(rest)
        return found

    def end(self, number: signal.Signals, *, seconds: float = 25.0) -> str:
        """Send a signal; what it wrote to stderr until its end."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=seconds)[1]


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    """Start a holder; all of them are gone after the test."""
    started: list[Holder] = []

    def start(folder: Path, user: int | None = None, python: str = sys.executable) -> Holder:
        process = subprocess.Popen(
            [python, str(HOLDER), str(folder)],
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": PYTHONPATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
        started.append(Holder(process, folder))
        return started[-1]

    yield start
    for holder in started:
        if holder.process.poll() is None:
            holder.end(signal.SIGKILL)
        for stream in (holder.process.stdout, holder.process.stderr):
            if stream is not None:
                stream.close()


def remains(folder: Path, *, seconds: float = 5.0) -> tuple[int, ...]:
    """Processes that still work in `folder`, or in a cluster elsewhere, after at most `seconds`."""
    record = folder / "postgres.location"
    places = [folder.resolve(), *([Path(record.read_text())] if record.exists() else [])]
    deadline = time.monotonic() + seconds
    while True:
        found = tuple(pid for place in places for pid in processes_in(place))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def clutter() -> set[Path]:
    """Sockets and temporary folders outside the data folder that a stack might leave."""
    temporary = Path("/tmp")  # noqa: S108 - looked at, not written
    clusters = (home for parent in ELSEWHERE for home in parent.glob(PREFIX + "*"))
    return {*temporary.glob("seaweedfs-*"), *temporary.glob(".s.PGSQL*"), *clusters}
