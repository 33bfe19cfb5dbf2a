"""The real worker, but that the stand-in of staged.py plays runner and verifier."""

import worker.supervisor
from tests.faults.supervised import Actor
from worker.__main__ import main

if __name__ == "__main__":
    worker.supervisor.Child = Actor  # type: ignore[misc]
    main()
