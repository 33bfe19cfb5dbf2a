"""A signal at any moment ends everything."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.embedded import Stack
from tests.integration.embedded.conftest import PYTHONPATH, Holder, clutter, remains

NOBODY = 65534


@pytest.mark.parametrize(
    ("number", "delay"),
    [
        (signal.SIGINT, 0.6),
        (signal.SIGTERM, 0.9),
        (signal.SIGINT, 1.2),
        (signal.SIGTERM, 1.6),
        (signal.SIGINT, 3.0),
    ],
)
def test_interrupted_start(
    data_folder: Path, hold: Callable[..., Holder], number: signal.Signals, delay: float
) -> None:
    """A start that is interrupted after `delay` seconds leaves no process and no socket."""
    before = clutter()
    holder = hold(data_folder)
    time.sleep(delay)
    holder.end(number)
    assert remains(data_folder, seconds=0) == ()
    assert not [path for path in clutter() - before if path.is_socket()]


def test_start_after_interrupted_starts(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """What interrupted starts left in the data folder does not stop the next one."""
    for delay in (0.7, 1.0, 1.3):
        holder = hold(data_folder)
        time.sleep(delay)
        holder.end(signal.SIGINT if delay != 1.0 else signal.SIGKILL)
    with Stack.start(data_folder) as stack:
        stack.check()


def test_impatient_user(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """A second and third Ctrl-C while the first one is being obeyed do not cut the stop short."""
    holder = hold(data_folder)
    holder.wait_ready()
    for _ in range(3):
        holder.process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    holder.end(signal.SIGINT)
    assert remains(data_folder, seconds=0) == ()


def test_terminal_interrupt(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """SIGINT in a running stack stops it in order: PostgreSQL says that it shut down."""
    holder = hold(data_folder)
    holder.wait_ready()
    assert "KeyboardInterrupt" in holder.end(signal.SIGINT)
    assert "database system is shut down" in (data_folder / "logs" / "postgres.log").read_text()


def python_of(user: int) -> str | None:
    """A Python that `user` may run and that finds our packages, None if there is none.

    That of the tests may lie below a folder that is closed to others.
    """
    probe = ["-c", "import services.embedded"]
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [python, *probe],
                check=False,
                capture_output=True,
                env={"PYTHONPATH": PYTHONPATH},
                user=user,
                group=user,
                extra_groups=[],
                cwd="/",
            )
        except PermissionError:
            continue
        if done.returncode == 0:
            return python
    return None


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of NOBODY's that NOBODY can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="ghosted-ordinary-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_ordinary_user(open_folder: Path, hold: Callable[..., Holder]) -> None:
    """A user without rights runs a stack: all parts are that user's, and all end."""
    python = python_of(NOBODY)
    if python is None:
        pytest.skip("needs a Python that other users may run")
    holder = hold(open_folder / "data", NOBODY, python)
    pids = holder.wait_ready()["pids"]
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {NOBODY}
    holder.end(signal.SIGKILL)
    assert remains(open_folder) == ()
