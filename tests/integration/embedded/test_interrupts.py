"""A signal at any moment ends everything."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.embedded import Stack
from tests.integration.embedded.conftest import Holder, clutter, remains

NOBODY = 65534


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.6, 0.9, 1.2, 1.5, 2.0, 3.0])
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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_ordinary_user(tmp_path: Path, hold: Callable[..., Holder]) -> None:
    """A user without rights runs a stack: all parts are that user's."""
    probe = [sys.executable, "-c", "import boto3, psycopg, redis"]
    done = subprocess.run(probe, check=False, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    if done.returncode != 0:
        pytest.skip("needs a Python that other users may run")
    folder = Path(f"/tmp/ghosted-ordinary-{os.getpid()}")  # noqa: S108 - pytest's own is closed to others
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, NOBODY, NOBODY)
        holder = hold(folder / "data", NOBODY)
        pids = holder.wait_ready()["pids"]
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {NOBODY}
        holder.end(signal.SIGINT)
        assert remains(folder, seconds=0) == ()
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


