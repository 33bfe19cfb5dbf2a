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
    cache_days: float = Field(
        default=30, gt=0, description="How long something stays in the cache that no job uses."
    )
    cache_gb: float | None = Field(
        default=None, gt=0, description="Above so many GiB the cache loses what was unused the longest."
    )
    tidy_seconds: Seconds = Field(
        default=3600, description="How often the cache is looked through, and folders of killed workers go."
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$",
        description="Device that jobs run on: auto, cpu, cuda or cuda:N.",
    )
    task_data: Path | None = Field(
        default=None,
        description="Folder with the items of benchmark tasks; without it no job may ask for any.",
    )
    scratch: Path | None = Field(
        default=None, description="Folder on a disk with room for two checkpoints; empty for the system's."
    )
    orders_seconds: Seconds = Field(default=1, description="How often a cancellation is looked for.")
    stop_seconds: Seconds = Field(
        default=10, description="How long a job's process has to end by itself before it is killed."
    )
    watchdog_seconds: Seconds = Field(
        default=120, description="A worker that leaves jobs waiting for so long ends, to be started anew."
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
