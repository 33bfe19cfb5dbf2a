"""The real worker, but that the stand-in of staged.py plays runner and verifier."""

import sys

import worker.supervisor
from tests.faults.supervised import Actor
from worker.__main__ import main
from worker.consumer import main as consume

if __name__ == "__main__":
    # The process that the worker starts to take messages is this module too, with arguments.
    worker.supervisor.Child = Actor  # type: ignore[misc]
    sys.exit(consume(*sys.argv[1:]) if sys.argv[1:] else main("tests.faults.staged_worker"))
