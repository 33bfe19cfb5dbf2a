"""A stand-in for runner and verifier that goes through every stage and stays in one of them.

The name of the model says how: words joined by dots. `STAGE` is where it stays, until it is ended or, with
`briefN`, for N seconds; `verify` stays in the verifier; `deaf` ignores SIGTERM; `mibN` leaves a file of
N MiB; `fade` ends with a fault that may pass, `refuse` with one that stays; `shutdown` and `absence` with
one that only the service may name. Without such a word it is quick.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.stage import MIB, say, wanted

STAGES = ("load", "score", "calibrate", "solve", "patch", "finetune", "evaluate", "save")
WORDS_FILE = "words.json"
# The codes that these words end with, and whether they say that it may pass.
FAULTS = {
    "fade": ("stand_in", True),
    "refuse": ("stand_in", False),
    "shutdown": ("worker_shutdown", True),
    "absence": ("database_unavailable", True),
}
# In the working folder, from when it stays somewhere.
STAYING = "staying"


def stay(words: list[str]) -> None:
    """Be in a stage for as long as the words say; a loop, as Python's own work is."""
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(STAYING).touch()
    end = time.monotonic() + wanted(".".join(words), "brief", 3600)
    while time.monotonic() < end:
        time.sleep(0.05)


def run(request: dict[str, Any], words: list[str]) -> None:
    """Every stage, then something like a checkpoint."""
    for stage in STAGES:
        say(event="StageStarted", stage=stage, total=1, unit="steps")
        if stage in words:
            stay(words)
        say(event="StageFinished", stage=stage, seconds=0.0, peak_memory_bytes=0)
    folder = Path(request["out"])
    folder.mkdir()
    size_bytes = wanted(".".join(words), "mib", 0) * MIB
    (folder / "model.safetensors").write_bytes(os.urandom(size_bytes))
    (folder / "ghosted.json").write_text(json.dumps({"parameters": 1, "stand_in": True}))
    (folder / WORDS_FILE).write_text(json.dumps(words))


def main() -> int:
    """Do as the request says, for a runner or a verifier."""
    request = json.loads(sys.stdin.readline())
    if "spec" in request:
        words = request["spec"]["model"]["id"].partition("/")[2].split(".")
        run(request, words)
    else:
        words = json.loads((Path(request["folder"]) / WORDS_FILE).read_text())
        if "verify" in words:
            stay(words)
    for code, passes in (FAULTS[word] for word in words if word in FAULTS):
        say(error={"code": code, "message": "no", "advice": "none", "retryable": passes})
        return 20 if passes else 10
    say(result={})
    return 0


if __name__ == "__main__":
    sys.exit(main())
