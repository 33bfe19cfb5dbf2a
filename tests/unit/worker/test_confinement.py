"""In processes of their own: what is taken from one cannot be given back."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ghosted_core.network import MACHINES

needs_filters = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in MACHINES, reason="seccomp filters are Linux's"
)
BEGIN = """
import socket, subprocess, sys, threading
from ghosted_core.network import forbid_network, may_reach_others
"""


def run(script: str) -> str:
    """What the script prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_filters
def test_no_thread_and_no_child_reaches_others() -> None:
    """Neither IPv4 nor IPv6, in this thread, in one that ran before, or in a program started later."""
    told = run(
        """
ready, found = threading.Event(), []
other = threading.Thread(target=lambda: (ready.wait(), found.append(may_reach_others())))
other.start()
before = may_reach_others()
assert forbid_network()
ready.set()
other.join()
try:
    socket.socket(socket.AF_INET6)
    found.append(True)
except PermissionError:
    found.append(False)
child = subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], stderr=subprocess.DEVNULL)
print(before, may_reach_others(), *found, child.returncode)
"""
    )
    assert told.split() == ["True", "False", "False", "False", "1"]


@needs_filters
def test_what_stays_on_the_machine_goes_on() -> None:
    """Pipes, files, programs and sockets of this machine's own work as before."""
    told = run(
        """
assert forbid_network()
left, right = socket.socketpair(socket.AF_UNIX)
left.send(b"x")
print(right.recv(1), subprocess.run(["/bin/echo", "y"], capture_output=True).stdout)
"""
    )
    assert told.split() == ["b'x'", r"b'y\n'"]


@needs_filters
def test_the_runner_has_no_network_after_loading() -> None:
    """While it loads it may fetch; once the stage is over, it may not."""
    told = run(
        """
from ghosted_core.recorder import Logged, Stage, StageFinished, StageStarted
from worker.runner import Confining

class Quiet:
    def record(self, event):
        pass

recorder = Confining(Quiet())
for event in (StageStarted(Stage.LOAD, None, "steps"), Logged("x"), StageFinished(Stage.LOAD, 1.0, None)):
    print(may_reach_others())
    recorder.record(event)
print(may_reach_others())
"""
    )
    assert told.split() == ["True", "True", "True", "False"]


def test_elsewhere_the_answer_is_no() -> None:
    """A platform without such filters is told apart, not crashed on."""
    assert (
        run("import platform\nplatform.machine = lambda: 'unheard-of'\nprint(forbid_network())") == "False\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_worker_closes_itself() -> None:
    """The kernel shows neither environment nor memory of it and its forks; a new program is open again."""
    told = run(
        """
import ctypes, os
from worker.confinement import close_to_others
dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
before = dumpable()
close_to_others()
print(before, dumpable(), os.stat("/proc/self/environ").st_uid, flush=True)
if os.fork() == 0:
    print(dumpable(), flush=True)
    os._exit(0)
os.wait()
"""
    )
    assert told.split() == ["1", "0", "0", "0"]


def test_the_worker_begins_so() -> None:
    """`python -m worker` does it before it reads a setting."""
    source = (Path(__file__).parents[3] / "worker/__main__.py").read_text()
    assert source.index("close_to_others()\n") < source.index("load_worker_settings()\n")
