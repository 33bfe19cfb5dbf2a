"""A process of ours that is asked once, and left alone before it can answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ghosted_core.evaluate.child import REQUEST
from ghosted_core.evaluate.task_protocol import Message
from ghosted_core.evaluate.tasks import task_environment


def check_ends_with_whoever_asked(module: str, request: Message, folder: Path, *, at_work: float) -> None:
    """It works for `at_work` seconds and more, and ends without a word when its stdin is closed."""
    (folder / REQUEST).write_text(request.model_dump_json())
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        cwd=folder,
        env=task_environment(os.environ, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(at_work)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, b"")
