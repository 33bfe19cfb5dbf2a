"""Serves the API with the settings of the environment."""

import signal
import sys

import uvicorn

from ghosted_core.errors import InvalidCatalogError
from ghosted_core.registry import read_registry
from services.app import create_app
from services.config import load_settings
from services.logs import configure_logging


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings()
    configure_logging(settings.log_level)
    try:
        # Again when its tools are opened; here, an operator reads one sentence instead of a traceback.
        read_registry(settings.catalog)
    except InvalidCatalogError as error:
        sys.exit(f"{error.message} {error.hint}")
    # After an ordered end uvicorn raises the signal again, for whoever handled it before; that end is 0.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        create_app(settings),
        host=settings.api_host,
        port=settings.api_port,
        # Our own lines, with ids, in place of the server's.
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    main()
