"""The process of a worker that takes messages: `python -m worker.consumer NAME DESCRIPTOR`."""

import os
import sys

from services.logs import configure_logging
from worker.app import create_app
from worker.config import load_worker_settings
from worker.confinement import close_to_others
from worker.identity import same_worker

# Nobody listens to what workers tell each other.
SILENT = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def main(name: str, descriptor: str) -> None:
    """Take messages until SIGTERM."""
    # As in the process that started it: this does not outlive an exec.
    close_to_others()
    settings = load_worker_settings()
    configure_logging(settings.log_level)
    app = create_app(settings, same_worker(settings, os.environ, name, int(descriptor)))
    app.worker_main(["worker", f"--loglevel={settings.log_level}", *SILENT])


if __name__ == "__main__":
    main(*sys.argv[1:])
