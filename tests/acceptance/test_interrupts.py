"""`ghosted compress`, stopped in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ghosted_cli.exits import INTERRUPTED
from tests.unit.cli.test_commands import compress_arguments


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_nothing(
    tiny_folder: Path, text_file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, or a closed terminal, in the middle of the work: exit code 130, no folder, no temporary one."""
    arguments = compress_arguments(tiny_folder, text_file, tmp_path / "out")
    arguments[arguments.index("--windows") + 1] = "3000"
    arguments[arguments.index("--calibration") + 1] = str(_long_text(tmp_path / "long.txt"))
    process = subprocess.Popen(
        [sys.executable, "-m", "ghosted_cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("evaluate"):
            break
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert "Interrupted" in said
    assert [file.name for file in tmp_path.iterdir()] == ["long.txt"]


def _long_text(path: Path) -> Path:
    path.write_text("\n\n".join(f"{n}. " + "word " * 40 for n in range(6000)), encoding="utf-8")
    return path
