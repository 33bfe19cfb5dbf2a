"""A process and its supervisor understand each other, whatever the process does."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ghosted_core.recorder import (
    Event,
    LayersChosen,
    Logged,
    MetricMeasured,
    Stage,
    StageFinished,
    StageProgressed,
    StageStarted,
    event_to_json,
)
from worker.child import Child
from worker.environment import job_environment
from worker.errors import RunnerCrashedError
from worker.protocol import ExitCode, Fault, Offered, Result, VerifyRequest, Wanted, read_line
from worker.scratch import PREFIX, open_scratch

MODULE = "tests.integration.worker.talkers"
Talk = Callable[[str], Child]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    """A process that behaves as named."""

    def begin(behaviour: str) -> Child:
        request = VerifyRequest(folder=tmp_path, device=behaviour)
        environment = job_environment(os.environ, tmp_path)
        return Child(
            MODULE,
            request,
            folder=tmp_path,
            log=tmp_path / "log",
            environment=environment,
            stop_seconds=0.5,
        )

    return begin


def nothing(_: Event) -> None:
    """Forget the event."""


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_prints_do_not_reach_the_pipe(talk: Talk, tmp_path: Path) -> None:
    """What libraries and programs print goes to the log; the events arrive whole and in order."""
    heard: list[Event] = []
    with talk("noisy") as child:
        ended = child.listen(heard.append)
    assert heard == [Logged("before"), Logged("after")]
    assert (ended.last, ended.exit_code) == (Result(), ExitCode.OK)
    assert (tmp_path / "log").read_text().split("\n")[:-1] == ["from C", "from a program", "from Python"]


@pytest.mark.parametrize(
    ("behaviour", "code", "exit_code"),
    [("refuse", "invalid_spec", ExitCode.REFUSED), ("fade", "storage_unavailable", ExitCode.TRANSIENT)],
)
def test_errors_cross_the_pipe(talk: Talk, behaviour: str, code: str, exit_code: ExitCode) -> None:
    """An error of ours arrives with code, words and whether it passes."""
    with talk(behaviour) as child:
        ended = child.listen(nothing)
    assert isinstance(ended.last, Fault)
    assert (ended.last.code, ended.exit_code) == (code, exit_code)
    assert ended.last.retryable == (exit_code is ExitCode.TRANSIENT)


def test_what_a_program_printed_stays_here(talk: Talk, tmp_path: Path) -> None:
    """It goes to the log of the process, and not over the pipe to the user."""
    with talk("lose_the_harness") as child:
        ended = child.listen(nothing)
    assert isinstance(ended.last, Fault)
    assert "private" not in str(ended.last)
    assert (tmp_path / "log").read_text() == "in /srv/private"


def test_crash_leaves_its_trace(talk: Talk, tmp_path: Path) -> None:
    """An exception that is none of ours ends the process with its trace in the log and no last word."""
    with talk("crash") as child:
        ended = child.listen(nothing)
    assert (ended.last, ended.exit_code) == (None, 1)
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("behaviour", ["babble", "break_off", "endless"])
def test_nonsense_is_refused(talk: Talk, behaviour: str) -> None:
    """A process that does not keep to the protocol is a crash."""
    with talk(behaviour) as child, pytest.raises(RunnerCrashedError):
        child.listen(nothing)


def test_killed_within_a_line_is_killed(talk: Talk) -> None:
    """How a process ended is told also where its end left half a line."""
    with talk("die_within_a_line") as child:
        ended = child.listen(nothing)
    assert (ended.last, ended.exit_code) == (None, -signal.SIGKILL)


def test_group_ends_with_its_first(talk: Talk) -> None:
    """A program that a process leaves behind ends with it."""
    heard: list[Event] = []
    with talk("linger") as child:
        child.listen(heard.append)
    said = heard[0]
    assert isinstance(said, Logged)
    deadline = time.monotonic() + 5
    while is_alive(int(said.message)):
        assert time.monotonic() < deadline


def test_deaf_process_is_killed(talk: Talk) -> None:
    """A process that ignores SIGTERM is killed when its time is over, from another thread too."""
    with talk("ignore") as child:
        stopper: list[threading.Thread] = []

        def stop_it(_: Event) -> None:
            stopper.append(threading.Thread(target=child.stop))
            stopper[0].start()

        begun = time.monotonic()
        ended = child.listen(stop_it)
        stopper[0].join()
    assert ended.exit_code == -signal.SIGKILL
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    "event",
    [
        StageStarted(Stage.LOAD, None, "steps"),
        StageProgressed(Stage.SAVE, 3),
        StageFinished(Stage.SOLVE, 0.5, 1 << 40),
        MetricMeasured("perplexity", 7.25, {"windows": 3}),
        LayersChosen((1, 3), 6, {"candidates": [[1, 0.5]]}),
        Logged("ein Wort", "warning"),
    ],
)
def test_events_survive_the_pipe(event: Event) -> None:
    """Every kind of event is the same on the other side."""
    assert read_line(json.dumps(event_to_json(event)).encode()) == event


@pytest.mark.parametrize("word", ["wanted", "offered"])
@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "", "A" * 64, "a" * 63, "a" * 64 + "\n", None, ["a" * 64]]
)
def test_keys_are_digests(word: str, key: object) -> None:
    """What a process asks for or offers never becomes a path of its own making."""
    good = read_line(json.dumps({word: "a" * 64}).encode())
    assert good in {Wanted(wanted="a" * 64), Offered(offered="a" * 64)}
    with pytest.raises(RunnerCrashedError):
        read_line(json.dumps({word: key}).encode())


def test_infinite_figures_survive_the_pipe() -> None:
    """A perplexity that is infinite arrives as it is, for the database to say so."""
    read = read_line(b'{"event":"MetricMeasured","name":"p","value":Infinity,"detail":{}}')
    assert isinstance(read, MetricMeasured)
    assert read.value == float("inf")


@pytest.mark.parametrize(
    "line", [b"[]", b"1", b"{}", b'{"event":"Unheard"}', b'{"event":"Logged"}', b'{"error":{}}', b"\xff"]
)
def test_lines_of_others_are_refused(line: bytes) -> None:
    """What no process of ours would write is refused by type, not by a stray exception."""
    with pytest.raises(RunnerCrashedError):
        read_line(line)


def test_unknown_variables_stay_outside(tmp_path: Path) -> None:
    """Only variables that are known to be needed and harmless pass."""
    outer = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "GHOSTED_S3_SECRET_KEY": "s",
        "AWS_PROFILE": "p",
        "HF_TOKEN": "t",
        "NEW_SECRET": "n",
        "HOME": "/root",
    }
    inner = job_environment(outer, tmp_path)
    assert inner["PATH"] == "/bin"
    assert inner["CUDA_VISIBLE_DEVICES"] == "1"
    assert inner["HOME"].startswith(str(tmp_path))
    assert not {"s", "p", "t", "n", "/root"} & set(inner.values())


def test_scratch_is_private(tmp_path: Path) -> None:
    """Nobody else can look into a scratch folder."""
    with open_scratch(tmp_path) as scratch:
        assert scratch.folder.stat().st_mode & 0o777 == 0o700


def test_scratch_goes_when_the_body_fails(tmp_path: Path) -> None:
    """An exception leaves no scratch folder behind."""

    def fail() -> None:
        with open_scratch(tmp_path):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_abandoned_scratch_is_removed(tmp_path: Path) -> None:
    """The scratch folder of a killed worker goes when the next one begins; one in use stays."""
    (tmp_path / f"{PREFIX}dead").mkdir()
    with open_scratch(tmp_path) as first, open_scratch(tmp_path) as second:
        assert set(tmp_path.iterdir()) == {first.folder, second.folder}
