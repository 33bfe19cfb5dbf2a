"""A runner and a verifier that need neither torch nor any other library: a job of milliseconds.

The name of the model says how it behaves: words joined by dots, `waitN` to work for N seconds, `stillN`
to work for N more and say nothing, `filesN` to leave N files, `eatN` to ask for N MiB. It speaks the real
protocol over the real pipe.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PIECE_BYTES = 4096
PAUSE_SECONDS = 0.1
MIB = 1 << 20
BEHAVIOUR = "behaviour"


def wanted(behaviour: str, word: str, default: int) -> int:
    """The number behind `word` in `behaviour`."""
    numbers = [part.removeprefix(word) for part in behaviour.split(".") if part.startswith(word)]
    return int(numbers[0]) if numbers else default


def say(**body: Any) -> None:
    """One line to the supervisor."""
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def run(request: dict[str, Any]) -> None:
    """Work as named, then leave something like a checkpoint."""
    behaviour = request["spec"]["model"]["id"].partition("/")[2]
    # By which a test finds this process among others.
    (Path(request["out"]).parent / BEHAVIOUR).write_text(behaviour)
    rounds = int(wanted(behaviour, "wait", 0) / PAUSE_SECONDS)
    say(event="StageStarted", stage="score", total=rounds, unit="steps")
    hoard = bytearray(wanted(behaviour, "eat", 0) * MIB)
    for done in range(rounds):
        time.sleep(PAUSE_SECONDS)
        say(event="StageProgressed", stage="score", done=done + 1)
    time.sleep(wanted(behaviour, "still", 0))
    say(event="MetricMeasured", name="hoard", value=float(len(hoard)), detail={})
    say(event="StageFinished", stage="score", seconds=0.0, peak_memory_bytes=0)
    leave(Path(request["out"]), wanted(behaviour, "files", 2))


def leave(folder: Path, files: int) -> None:
    """The files of a result."""
    folder.mkdir()
    for number in range(files):
        (folder / f"model-{number:05}.safetensors").write_bytes(os.urandom(PIECE_BYTES))
    (folder / "ghosted.json").write_text(json.dumps({"parameters": 1, "stand_in": True}))


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    if "spec" in asked:
        run(asked)
    say(result={})
