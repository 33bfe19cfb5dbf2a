"""The process of a worker that takes messages: `python -m worker.consumer NAME DESCRIPTOR`."""

import logging
import os
import sys

from worker.app import create_app
from worker.config import load_worker_settings
from worker.identity import same_worker

# Nobody listens to what workers tell each other.
SILENT = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def main(name: str, descriptor: str) -> None:
    """Take messages until SIGTERM."""
    settings = load_worker_settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    app = create_app(settings, same_worker(settings, os.environ, name, int(descriptor)))
    app.worker_main(["worker", f"--loglevel={settings.log_level}", *SILENT])


if __name__ == "__main__":
    main(*sys.argv[1:])
