"""What an operator can set for workers, beside the settings of the service."""

from pathlib import Path

from pydantic import Field

from services.config import Seconds, Settings


def _user_cache() -> Path:
    return Path("~/.cache/ghosted").expanduser()


class WorkerSettings(Settings):
    """The settings of a worker; docs/worker.md has a line for each that is not the service's."""

    cache: Path = Field(
        default_factory=_user_cache, description="Where models and texts are kept once they were fetched."
    )
    device: str = Field(default="auto", description="Device that jobs run on: auto, cpu, cuda or cuda:N.")
    scratch: Path | None = Field(
        default=None, description="Folder on a disk with room for two checkpoints; empty for the system's."
    )
    orders_seconds: Seconds = Field(default=1, description="How often a cancellation is looked for.")
    stop_seconds: Seconds = Field(
        default=10, description="How long a job's process has to end by itself before it is killed."
    )

    stage_bytes: int = Field(
        default=4 << 30,
        ge=0,
        description="How much a job may take over from earlier ones, and leave for later ones; 0: nothing.",
    )


def load_worker_settings() -> WorkerSettings:
    """The settings of this process's environment.

    Raises:
        pydantic.ValidationError: a setting is missing or out of range.
    """
    return WorkerSettings()
