"""A kill for want of memory is told by the kernel's counters, whichever version counts."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.evidence import VICTIM_SCORE, MemoryWatch, memory_group, prefer_as_victim

LIMIT = 3 << 30
# The files of a group at so many kills, below the folder where the system shows its groups.
Write = Callable[[Path, int], None]


def version_1(groups: Path, kills: int) -> None:
    folder = groups / "memory" / "job"
    write(folder / "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
    write(folder / "memory.limit_in_bytes", f"{LIMIT}\n")


def version_1_old(groups: Path, kills: int) -> None:
    folder = groups / "memory" / "job"
    write(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    write(folder / "memory.failcnt", f"{kills}\n")
    write(folder / "memory.limit_in_bytes", f"{LIMIT}\n")


def version_2(groups: Path, kills: int) -> None:
    folder = groups / "job"
    write(folder / "memory.events", f"low 0\nhigh 0\nmax 9\noom 4\noom_kill {kills}\noom_group_kill 0\n")
    write(folder / "memory.max", f"{LIMIT}\n")


def both_versions(groups: Path, kills: int) -> None:
    folder = groups / "unified" / "job"
    write(folder / "memory.events", f"max 9\noom_kill {kills}\n")
    write(folder / "memory.max", f"{LIMIT}\n")


def container_version_2(groups: Path, kills: int) -> None:
    """The group is the root of what a container sees, whatever the path outside is."""
    write(groups / "memory.events", f"max 9\noom_kill {kills}\n")
    write(groups / "memory.max", f"{LIMIT}\n")


def write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


V1 = "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/job\n"
V2 = "0::/job\n"
KINDS = [
    (V1, version_1),
    (V1, version_1_old),
    (V2, version_2),
    (V1 + V2, both_versions),
    (V2, container_version_2),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind[1].__name__)
def kind(request: pytest.FixtureRequest) -> tuple[str, Write]:
    """What `/proc/self/cgroup` says, and how the group's files look."""
    found: tuple[str, Write] = request.param
    return found


@pytest.fixture
def watched(kind: tuple[str, Write], tmp_path: Path) -> MemoryWatch:
    """A watch that began after one kill, of somebody else."""
    memberships, files = kind
    write(tmp_path / "self", memberships)
    files(tmp_path / "groups", 1)
    return MemoryWatch.begin(memory_group(tmp_path / "self", tmp_path / "groups"))


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_counted_kill(watched: MemoryWatch, kind: tuple[str, Write], tmp_path: Path, exit_code: int) -> None:
    """SIGKILL and one kill more in the group: it was the memory, and the message says how much there is."""
    kind[1](tmp_path / "groups", 2)
    explained = watched.explain(exit_code)
    assert explained is not None
    assert explained.code == "out_of_memory"
    assert "3.0 GiB" in explained.message


def test_kill_by_hand(watched: MemoryWatch) -> None:
    """SIGKILL without a kill more in the group proves nothing."""
    assert watched.explain(-9) is None


@pytest.mark.parametrize("exit_code", [-11, -15, 1, 0])
def test_other_ends(watched: MemoryWatch, kind: tuple[str, Write], tmp_path: Path, exit_code: int) -> None:
    """A process that did not end by SIGKILL was not killed for memory, whoever else was."""
    kind[1](tmp_path / "groups", 2)
    assert watched.explain(exit_code) is None


def test_no_limit_to_tell(kind: tuple[str, Write], tmp_path: Path) -> None:
    """Without a limit of the group's own the message names none."""
    memberships, files = kind
    write(tmp_path / "self", memberships)
    files(tmp_path / "groups", 0)
    watch = MemoryWatch.begin(memory_group(tmp_path / "self", tmp_path / "groups"))
    files(tmp_path / "groups", 1)
    for limit in tmp_path.rglob("memory.max"):
        limit.write_text("max\n")
    for limit in tmp_path.rglob("memory.limit_in_bytes"):
        limit.write_text("9223372036854771712\n")
    explained = watch.explain(-9)
    assert explained is not None
    assert "GiB" not in explained.message


@pytest.mark.parametrize("memberships", ["", V1, V2, "4:memory:/gone\n0::/\n"])
def test_nobody_counts(tmp_path: Path, memberships: str) -> None:
    """Where no kernel counts, or none that we may read, nothing is claimed."""
    write(tmp_path / "self", memberships)
    assert memory_group(tmp_path / "self", tmp_path / "groups") is None
    assert memory_group(tmp_path / "missing", tmp_path / "groups") is None
    assert MemoryWatch(None, 0).explain(-9) is None


def test_job_goes_first() -> None:
    """A job's process is the one that the kernel is to end; one that is gone is no trouble."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    prefer_as_victim(process.pid)
    assert int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()) == VICTIM_SCORE
    process.communicate(b"\n")
    prefer_as_victim(process.pid)
