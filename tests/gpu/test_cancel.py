"""A stopped job leaves nothing on the GPU."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from ghosted_core.spec import JobSpec
from tests.jobs import tiny_spec
from worker.child import NOTHING_KEPT, Child
from worker.environment import job_environment
from worker.protocol import RunRequest

pytestmark = pytest.mark.gpu

# What other processes on the machine may take or give back meanwhile.
TOLERANCE_BYTES = 64 << 20


def request_of(spec: JobSpec, folder: Path) -> RunRequest:
    return RunRequest(
        spec=spec, out=folder / "out", cache=folder / "cache", device="cuda", stages=folder / "stages"
    )


def test_a_stopped_job_gives_its_memory_back(
    gpu: torch.device, tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """The device's free memory is what it was before, once the job's process has been stopped at work."""
    (tmp_path / "stages").mkdir()
    before, _ = torch.cuda.mem_get_info(gpu)
    spec = tiny_spec(tiny_folder, text_file, remove=[2, 3])
    child = Child(
        "worker.runner",
        request_of(spec, tmp_path),
        folder=tmp_path,
        log=tmp_path / "log",
        environment=job_environment(os.environ, tmp_path),
        stop_seconds=10,
    )
    listening = threading.Thread(target=child.listen, args=(lambda _: None, NOTHING_KEPT))
    with child:
        listening.start()
        deadline = time.monotonic() + 120
        while torch.cuda.mem_get_info(gpu)[0] > before - TOLERANCE_BYTES:
            assert time.monotonic() < deadline, "the job never took memory of the device"
            time.sleep(0.01)
        child.stop()
        listening.join()
    after, _ = torch.cuda.mem_get_info(gpu)
    assert after > before - TOLERANCE_BYTES
