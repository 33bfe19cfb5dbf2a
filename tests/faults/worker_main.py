"""The real worker, but that jobs on a model of `stand-in/` run the stage that needs no torch."""

import json
import sys
from typing import Any

import worker.supervisor
from worker.__main__ import main
from worker.child import Child
from worker.consumer import main as consume
from worker.protocol import Message, RunRequest, VerifyRequest

STAND_IN = "tests.faults.stage"


def is_stand_in(request: Message) -> bool:
    """Whether the job is one of those that need no torch."""
    if isinstance(request, RunRequest):
        return str(getattr(request.spec.model, "id", "")).startswith("stand-in/")
    if isinstance(request, VerifyRequest):
        return "stand_in" in json.loads((request.folder / "ghosted.json").read_bytes())
    return False


class Actor(Child):
    """A child whose module may be another."""

    def __init__(self, module: str, request: Message, **rest: Any) -> None:
        super().__init__(STAND_IN if is_stand_in(request) else module, request, **rest)


if __name__ == "__main__":
    # The process that the worker starts to take messages is this module too, with arguments.
    worker.supervisor.Child = Actor  # type: ignore[misc]
    sys.exit(consume(*sys.argv[1:]) if sys.argv[1:] else main("tests.faults.worker_main"))
