"""A process of our own, offline and without credentials: for foreign programs, or to measure."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import ghosted_core
from ghosted_core.environment import COMPUTING


@contextmanager
def process_of_ours(
    module: str, folder: Path, *, stdout: int | IO[bytes], stderr: int | IO[bytes] | None
) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m module` in `folder`, with a pipe to its stdin; when the block ends, so has it.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        # -P: nothing in the working folder may be imported.
        [sys.executable, "-P", "-m", module],
        cwd=folder,
        env=own_environment(os.environ, folder),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def own_environment(outer: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables of such a process: offline, without credentials, its traces below `folder`."""
    kept = {name: value for name, value in outer.items() if name in COMPUTING}
    home = folder / "home"
    own = {
        "HOME": home,
        "TMPDIR": folder,
        "XDG_CACHE_HOME": home / "cache",
        "HF_HOME": home / "huggingface",
        "HF_DATASETS_CACHE": home / "datasets",
        "LM_HARNESS_CACHE_PATH": home / "harness",
        "NLTK_DATA": home / "nltk",
        "PYTHONPATH": os.pathsep.join(_import_paths(outer)),
    }
    switches = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_TRUST_REMOTE_CODE": "0",
        "TOKENIZERS_PARALLELISM": "false",
        # The harness would fork for bootstraps, in a process that has threads, which may hold locks.
        "DISABLE_MULTIPROC": "1",
        # Some libraries ask for the user's name, which a container may not have.
        "USER": "ghosted",
    }
    return kept | {name: str(value) for name, value in own.items()} | switches


def _import_paths(outer: Mapping[str, str]) -> list[str]:
    """Absolute, because the process works in another folder."""
    home = Path(ghosted_core.__file__).parents[1]
    given = [entry for entry in outer.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [str(home), *(str(Path(entry).resolve()) for entry in given if Path(entry).resolve() != home)]
