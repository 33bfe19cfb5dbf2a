"""A process of ours that is asked once, and left alone before it can answer."""

import subprocess
from pathlib import Path

import pytest

from ghosted_core.evaluate.child import REQUEST
from ghosted_core.evaluate.own_process import process_of_ours
from ghosted_core.evaluate.task_protocol import Message


def check_ends_with_whoever_asked(module: str, request: Message, folder: Path, *, at_work: float) -> None:
    """It works for `at_work` seconds and more, and ends without a word when its stdin is closed."""
    (folder / REQUEST).write_text(request.model_dump_json())
    with process_of_ours(module, folder, stdout=subprocess.PIPE, stderr=None) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(at_work)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, b"")
