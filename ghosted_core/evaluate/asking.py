"""A question to a process of its own, offline and without credentials, which ends with its answer."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from ghosted_core.evaluate.child import REQUEST
from ghosted_core.evaluate.own_process import process_of_ours
from ghosted_core.evaluate.task_protocol import Message


def ask(module: str, request: Message, *, seconds: float, longest_bytes: int) -> bytes:
    """What `python -m module` writes to stdout on `request`, at most `longest_bytes` of it.

    Raises:
        OSError: it cannot be started.
        subprocess.SubprocessError: it did not end well, or not within `seconds`; it is gone then.
    """
    with TemporaryDirectory(prefix="ghosted-ask-") as name, (Path(name) / "answer").open("w+b") as said:
        folder = Path(name)
        (folder / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        # Nothing is said through its stdin: when this end closes, however, the process ends.
        with process_of_ours(module, folder, stdout=said, stderr=subprocess.DEVNULL) as process:
            code = process.wait(seconds)
        if code:
            raise subprocess.CalledProcessError(code, module)
        said.seek(0)
        return said.read(longest_bytes)
