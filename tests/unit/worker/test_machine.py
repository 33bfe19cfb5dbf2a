"""What a machine says of itself."""

import os
import stat
from pathlib import Path

import pytest

from worker.machine import MIB, Gpu, free_disk, list_gpus, main_memory

GIB = 1 << 30
MEMINFO = f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {50 << 20} kB\n"


def script(folder: Path, text: str) -> None:
    """A program nvidia-smi in `folder` that prints `text`."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which programs are looked for first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_gpus_are_listed(smi: Path) -> None:
    """Each line of nvidia-smi is a GPU, with its memory in bytes; what it does not know is not known."""
    script(smi, "0, GPU-aa, NVIDIA H200, 143771, 143000\n1, GPU-bb, NVIDIA GB10, [N/A], [N/A]")
    assert list_gpus() == (
        Gpu(0, "GPU-aa", "NVIDIA H200", 143771 * MIB, 143000 * MIB),
        Gpu(1, "GPU-bb", "NVIDIA GB10", None, None),
    )


@pytest.mark.parametrize("said", ["", "No devices were found", "a, b", "x, GPU, name, 1, 1"])
def test_nonsense_is_no_gpu(smi: Path, said: str) -> None:
    """Whatever else it says, there is no GPU."""
    script(smi, said)
    assert list_gpus() == ()


def test_a_failing_program_is_no_gpu(smi: Path) -> None:
    """A driver that does not answer makes nvidia-smi fail, not the worker."""
    (smi / "nvidia-smi").write_text("#!/bin/sh\necho 0, GPU-aa, name, 1, 1\nexit 9\n")
    (smi / "nvidia-smi").chmod(0o700)
    assert list_gpus() == ()


def test_no_program_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without nvidia-smi has no GPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == ()


def group(folder: Path, **files: object) -> None:
    """A control group with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def memory(tmp_path: Path, own: str) -> tuple[int | None, int | None]:
    """Total and free, by files below `tmp_path`."""
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "own").write_text(own)
    found = main_memory(tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own")
    return found.total_bytes, found.free_bytes


def test_memory_of_the_machine(tmp_path: Path) -> None:
    """Without a limit it is what the kernel calls available."""
    assert memory(tmp_path, "0::/user\n") == (64 * GIB, 50 * GIB)


def test_limits_of_version_two(tmp_path: Path) -> None:
    """The narrowest limit of the group and those around it counts, and pages of files can be dropped."""
    groups = tmp_path / "groups"
    group(groups / "a", memory__max=8 * GIB, memory__current=3 * GIB, memory__stat=f"inactive_file {GIB}")
    group(groups / "a" / "b", memory__max="max", memory__current=GIB, memory__stat="inactive_file 0")
    assert memory(tmp_path, "0::/a/b\n") == (8 * GIB, 6 * GIB)


def test_limits_of_version_one(tmp_path: Path) -> None:
    """The group of the memory controller counts; a limit beyond the machine is none."""
    group(
        tmp_path / "groups" / "memory" / "a",
        memory__limit_in_bytes=4 * GIB,
        memory__usage_in_bytes=5 * GIB,
        memory__stat=f"total_inactive_file {2 * GIB}",
    )
    group(tmp_path / "groups" / "memory", memory__limit_in_bytes=1 << 62, memory__usage_in_bytes=9 * GIB)
    assert memory(tmp_path, "7:cpu,memory:/a\n1:name=systemd:/a\n") == (4 * GIB, GIB)


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    """The path that the kernel names may lie outside; the limit still counts."""
    group(tmp_path / "groups", memory__max=2 * GIB, memory__current=GIB)
    assert memory(tmp_path, "0::/../elsewhere\n") == (2 * GIB, GIB)


def test_no_kernel_files(tmp_path: Path) -> None:
    """Where the system has no such files, nothing is known and nothing fails."""
    found = main_memory(tmp_path / "none", tmp_path / "none", tmp_path / "none")
    assert (found.total_bytes, found.free_bytes) == (None, None)


def test_this_machine_has_memory_and_disk(tmp_path: Path) -> None:
    """On this machine the free amounts are positive, and memory's no more than the whole."""
    found = main_memory()
    assert found.total_bytes is not None
    assert found.free_bytes is not None
    assert 0 < found.free_bytes <= found.total_bytes
    assert (free_disk(tmp_path / "not" / "yet") or 0) > 0
