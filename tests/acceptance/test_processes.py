"""What only shows in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from ghosted_core.testing import tiny_llama
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

MEASURE = """
import resource, sys
from pathlib import Path
import torch
from ghosted_core.checkpoint import write
write.SHARD_SIZE = "16MB"
# Views, so that each has to be copied on its way to the disk, as from a GPU.
tensors = {f"layer.{i}.weight": torch.ones(1024, 1024).T for i in range(48)}
write._write_weights({"warm": torch.ones(1024, 1024)}, Path(sys.argv[1]) / "warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write._write_weights(tensors, Path(sys.argv[1]) / "all")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS counts ru_maxrss in bytes")
def test_writing_needs_a_shard_of_memory_not_a_model(tmp_path: Path) -> None:
    """192 MiB go to disk in shards of 16 MB; the process grows by less than five of them."""
    for name in ("warm", "all"):
        (tmp_path / name).mkdir()
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert len(list((tmp_path / "all").glob("*.safetensors"))) > 8
    assert int(finished.stdout) < 80e6


def test_a_script_without_a_main_guard_runs_once(text_file: Path, tmp_path: Path) -> None:
    """No process of ours imports the caller's script again."""
    source = save_tiny_model(tiny_llama(), tmp_path / "source")
    spec = tiny_spec(source, text_file, remove=[1])
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from ghosted_core.pipeline import RunOptions, compress\n"
        "from ghosted_core.recorder import NullRecorder\n"
        "from ghosted_core.spec import JobSpec\n"
        "print('begun', flush=True)\n"
        f"spec = JobSpec.model_validate_json({spec.model_dump_json()!r})\n"
        f"here = Path({str(tmp_path)!r})\n"
        "options = RunOptions(out=here / 'out', cache=here / 'cache')\n"
        "compress(spec, options, NullRecorder())\n"
    )
    finished = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": ".", "PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
    )
    assert finished.stdout.count("begun") == 1
    assert (tmp_path / "out" / "ghosted.json").exists()
