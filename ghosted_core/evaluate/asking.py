"""A question to a process of its own, offline and without credentials, which ends with its answer."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ghosted_core.evaluate.child import REQUEST
from ghosted_core.evaluate.task_protocol import Message
from ghosted_core.evaluate.tasks import task_environment


def ask(module: str, request: Message, *, seconds: float, longest_bytes: int) -> bytes:
    """What `python -m module` writes to stdout on `request`, at most `longest_bytes` of it.

    Raises:
        OSError: it cannot be started.
        subprocess.SubprocessError: it did not end well, or not within `seconds`; it is gone then.
    """
    with TemporaryDirectory(prefix="ghosted-ask-") as name, (Path(name) / "answer").open("w+b") as said:
        folder = Path(name)
        (folder / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        with subprocess.Popen(
            # -P: nothing in the working folder may be imported.
            [sys.executable, "-P", "-m", module],
            cwd=folder,
            env=task_environment(os.environ, folder),
            # Nothing is said through it: when this end closes, however, the process ends.
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                code = process.wait(seconds)
            finally:
                process.kill()
        if code:
            raise subprocess.CalledProcessError(code, module)
        said.seek(0)
        return said.read(longest_bytes)
