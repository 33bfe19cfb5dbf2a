"""Takes jobs with the settings of the environment: `python -m worker`."""

from services.logs import configure_logging
from worker.app import create_app
from worker.config import load_worker_settings
from worker.confinement import close_to_others

# Nobody listens to what workers tell each other.
SILENT = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def main() -> None:
    """Work until SIGTERM or SIGINT; a running job then waits for another worker."""
    # Its environment holds the credentials that a job's process, of the same user, must not have.
    close_to_others()
    settings = load_worker_settings()
    configure_logging(settings.log_level)
    create_app(settings).worker_main(["worker", f"--loglevel={settings.log_level}", *SILENT])


if __name__ == "__main__":
    main()
