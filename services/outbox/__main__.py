"""Relays and sweeps with the settings of the environment."""

import logging
import signal
from threading import Event

from services.config import load_settings
from services.logs import configure_logging
from services.outbox.loop import run
from services.readiness import shown


def main() -> None:
    """Work until SIGTERM or SIGINT."""
    settings = load_settings()
    configure_logging(settings.log_level)
    stop = Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    logging.getLogger(__name__).info("relay and sweeper run")
    with shown(settings.ready_file):
        run(settings, stop)


if __name__ == "__main__":
    main()
