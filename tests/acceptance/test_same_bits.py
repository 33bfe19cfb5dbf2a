"""The same job on the same machine with the same number of threads gives the same bits."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.cli.test_commands import compress_arguments


def compress(model: Path, text: Path, out: Path, cache: Path) -> str:
    """Run the job in a process of its own; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "ghosted_cli", *compress_arguments(model, text, out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GHOSTED_CACHE": str(cache), "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def weights(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def test_processes_agree_with_each_other_and_with_the_cache(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Twice from nothing, and once from what the first run left: same layers, equal bytes."""
    said = [
        compress(tiny_folder, text_file, tmp_path / name, tmp_path / cache)
        for name, cache in (("one", "first"), ("two", "second"), ("three", "first"))
    ]
    assert ["taken from an earlier run" in text for text in said] == [False, False, True]
    plans = [
        json.loads((tmp_path / name / "ghosted.json").read_text())["plan"] for name in ("one", "two", "three")
    ]
    assert plans[0] == plans[1] == plans[2]
    assert weights(tmp_path / "one") == weights(tmp_path / "two") == weights(tmp_path / "three")
