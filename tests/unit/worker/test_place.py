"""Where a worker's jobs run."""

from pathlib import Path

import pytest

from services.workers.repository import Device
from tests.unit.worker.test_machine import script
from worker.environment import job_environment
from worker.errors import DeviceMissingError
from worker.machine import MIB
from worker.place import Place, find_place

TWO = "0, GPU-aa, NVIDIA A, 100, 90\n1, GPU-bb, NVIDIA B, 200, 150"


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, and a torch that can use them."""
    script(tmp_path, TWO)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("worker.place._torch_is_without_cuda", lambda: False)


@pytest.mark.parametrize(
    ("device", "outer", "told", "gpu"),
    [
        ("cpu", {}, "cpu", None),
        ("auto", {}, "auto", "0"),
        ("cuda", {}, "cuda", "0"),
        ("cuda:1", {}, "cuda", "1"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1,0"}, "cuda", "1"),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "GPU-bb, GPU-aa"}, "cuda", "GPU-aa"),
        ("auto", {"CUDA_VISIBLE_DEVICES": ""}, "auto", None),
    ],
)
def test_one_gpu_each(
    two_gpus: None, tmp_path: Path, device: str, outer: dict[str, str], told: str, gpu: str | None
) -> None:
    """The setting picks one of the GPUs that the worker may use, and its jobs see that one only."""
    place = find_place(device, outer, tmp_path)
    assert (place.device, place.gpu) == (told, gpu)
    assert place.environment(outer).get("CUDA_VISIBLE_DEVICES") == (
        gpu if gpu is not None else outer.get("CUDA_VISIBLE_DEVICES")
    )


def test_the_jobs_process_gets_the_variables(two_gpus: None, tmp_path: Path) -> None:
    """What the place says passes into the environment of a job's process, in the order nvidia-smi counts."""
    place = find_place("cuda:1", {}, tmp_path)
    inner = job_environment(place.environment({"PATH": "/bin"}), tmp_path)
    assert (inner["CUDA_VISIBLE_DEVICES"], inner["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")


def test_memory_is_that_of_the_gpu(two_gpus: None, tmp_path: Path) -> None:
    """Kind, name, whole and free memory are those of the one GPU, by number or by identifier."""
    for name in ("1", "GPU-b"):
        place = Place("cuda", name, tmp_path)
        assert place.devices() == (Device("cuda", "NVIDIA B", 200 * MIB),)
        assert place.room().memory_bytes == 150 * MIB


@pytest.mark.parametrize("device", ["cuda:2", "cuda:7"])
def test_a_gpu_that_is_not_there(two_gpus: None, tmp_path: Path, device: str) -> None:
    """A worker for a GPU that the machine has not does not start."""
    with pytest.raises(DeviceMissingError, match="2 GPU"):
        find_place(device, {}, tmp_path)


def test_torch_without_cuda(two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is of no use to a torch that is built without CUDA."""
    monkeypatch.setattr("worker.place._torch_is_without_cuda", lambda: True)
    assert find_place("auto", {}, tmp_path) == Place("cpu", None, tmp_path)


def test_a_gpu_is_itself_under_any_name(two_gpus: None, tmp_path: Path) -> None:
    """One GPU has one identity, two have two, however they are called: containers count from 0 each."""
    first, same, other = (Place("cuda", name, tmp_path).gpu_identity() for name in ("1", "GPU-bb", "0"))
    assert first == same == "GPU-bb"
    assert other == "GPU-aa"
    assert Place("cpu", None, tmp_path).gpu_identity() is None


def test_nothing_tells_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-smi the setting is believed; memory is not known, so nothing is refused for it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    place = find_place("cuda:3", {}, tmp_path)
    assert place == Place("cuda", "3", tmp_path)
    assert place.devices() == (Device("cuda", "3", None),)
    assert place.room().memory_bytes is None
    assert find_place("auto", {}, tmp_path) == Place("auto", None, tmp_path)
