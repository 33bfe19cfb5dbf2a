"""What an operator can set. Read once, at the start of a process, from variables named GHOSTED_*."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.sealing import SecretBox
from services.workers.classes import parse_classes

Seconds = Annotated[float, Field(gt=0)]
WholeSeconds = Annotated[int, Field(gt=0)]
DATABASE_SCHEMES = ("postgresql", "postgresql+psycopg", "postgres")
REDIS_SCHEMES = ("redis", "rediss")


class DatabaseSettings(BaseSettings):
    """All that commands need which only reach the database."""

    model_config = SettingsConfigDict(
        env_prefix="GHOSTED_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    database_url: SecretStr = Field(
        description="PostgreSQL 15 or newer, as postgresql://user:password@host/name."
    )

    @field_validator("database_url")
    @classmethod
    def _database_is_postgresql(cls, value: SecretStr) -> SecretStr:
        return _of_scheme(value, DATABASE_SCHEMES)


class StoreSettings(BaseSettings):
    """Where the object store is, and how it is used; all that a transfer needs to know."""

    model_config = SettingsConfigDict(
        env_prefix="GHOSTED_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    s3_endpoint: str | None = Field(
        default=None, description="Object store as the services reach it; empty for AWS."
    )
    s3_public_endpoint: str | None = Field(
        default=None, description="Object store as the users reach it; links are signed for it."
    )
    s3_access_key: str = Field(description="Access key of the object store.")
    s3_secret_key: SecretStr = Field(description="Secret key of the object store.")
    s3_bucket: str = Field(default="ghosted", min_length=3, description="Bucket of all artifacts; private.")
    s3_region: str = Field(default="us-east-1", description="Region that requests are signed for.")
    s3_checksums: Literal["when_required", "when_supported"] = Field(
        default="when_required",
        description="When boto3 adds its own checksums; many stores other than AWS refuse them.",
    )
    s3_part_bytes: int = Field(
        default=32 * 2**20,
        ge=5 * 2**20,
        le=5 * 2**30,
        description="Files longer than this travel in parts of this length; only lost parts are sent again.",
    )
    s3_answer_seconds: Seconds = Field(
        default=60, description="How long the object store may take for one answer of a transfer."
    )
    s3_patience_seconds: Seconds = Field(
        default=300, description="How long a transfer outlasts a store that fails before its attempt fails."
    )
    s3_unfinished_days: int = Field(
        default=3, ge=1, description="When the store itself drops unfinished uploads, where it can do that."
    )


class Settings(StoreSettings, DatabaseSettings):
    """Every setting of the API, the outbox and the workers; docs/settings.md has a line for each."""

    redis_url: SecretStr = Field(description="Redis or Valkey that carries the wake-ups, as redis://host/0.")

    lease_seconds: WholeSeconds = Field(
        default=30, description="A worker that is silent for this long has lost its job."
    )
    heartbeat_seconds: Seconds = Field(default=5, description="How often a worker renews its lease.")
    sweep_seconds: Seconds = Field(default=5, description="How often lost jobs are looked for.")
    relay_seconds: Seconds = Field(default=0.5, description="How often unsent wake-ups are looked for.")
    republish_seconds: WholeSeconds = Field(
        default=60, description="A wake-up that nobody followed for this long is sent again."
    )
    max_attempts: int = Field(default=3, ge=1, description="How often a job is begun before it fails.")
    retry_delay_seconds: WholeSeconds = Field(
        default=5, description="Wait before the second attempt; doubles with each further one."
    )

    deadline_default_seconds: WholeSeconds = Field(
        default=6 * 3600, description="How long a job may run unless it says otherwise."
    )
    deadline_max_seconds: int = Field(
        default=24 * 3600, gt=0, le=10**9, description="The longest deadline that a job may ask for."
    )
    artifact_days: int = Field(default=30, ge=1, description="How long an artifact is kept.")
    stage_days: int = Field(
        default=14, ge=1, description="How long what finished stages found is kept for later jobs."
    )
    link_seconds: int = Field(
        default=3600, ge=1, le=3600, description="How long a download link works; an hour at most."
    )

    catalog: Path | None = Field(
        default=None,
        description="TOML file with aliases of models and data sets; API and workers need the same.",
    )
    memory_classes: str = Field(
        default="small:16,medium:48,large",
        description="Queues by what a job needs: names, and the most of each in GiB but for the last.",
    )
    worker_keep_seconds: WholeSeconds = Field(
        default=3600, description="How long a worker that is gone stays in the list of workers."
    )

    ready_file: Path | None = Field(
        default=None,
        description="File that exists while a relay or worker is at work; for health checks. One each.",
    )
    auth_enabled: bool = Field(
        default=True, description="Whether requests need a key. Without, everyone sees every job."
    )
    resolve_models: bool = Field(
        default=True,
        description="Whether the API asks the Hub for a model's commit when a job is submitted; off where "
        "only the workers reach the Hub.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="Random texts of 32 or more characters, separated by commas, that Hub tokens are "
        "encrypted with; the first encrypts, all decrypt. Empty: no tokens are taken.",
    )
    requests_per_minute: int = Field(
        default=600, ge=0, description="Requests that a key may send in a minute; 0 for no limit."
    )
    jobs_per_day: int = Field(
        default=1000, ge=0, description="Jobs that a key may submit in 24 hours; 0 for no limit."
    )
    queued_jobs_per_key: int = Field(
        default=100, ge=0, description="Jobs of a key that may wait at once; 0 for no limit."
    )
    upload_max_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1, le=5 * 1024**3, description="Longest text that may be uploaded."
    )
    upload_max_line_bytes: int = Field(
        default=1024 * 1024, ge=1, le=16 * 1024**2, description="Longest line of an uploaded text."
    )
    upload_days: int = Field(default=7, ge=1, description="How long an uploaded text is kept.")
    uploads_per_key: int = Field(
        default=50, ge=0, description="Uploads of a key that are kept at once; 0 for no limit."
    )
    max_body_bytes: int = Field(default=256 * 1024, ge=1024, description="Longest request body read.")
    public_base_url: str | None = Field(
        default=None, description="Address of the API as the users reach it; empty gives relative links."
    )
    api_host: str = Field(default="127.0.0.1", description="Address that the API listens on.")
    api_port: int = Field(default=8000, ge=0, le=65535, description="Port that the API listens on.")
    metrics: Literal["off", "admin", "anyone"] = Field(
        default="admin", description="Who may read /metrics: nobody, keys of the scope admin, or anyone."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="OTLP/HTTP collector that traces are sent to, as http://host:4318; empty for none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe lines that are logged."
    )

    @field_validator("redis_url")
    @classmethod
    def _broker_is_redis(cls, value: SecretStr) -> SecretStr:
        return _of_scheme(value, REDIS_SCHEMES)

    @field_validator("memory_classes")
    @classmethod
    def _classes_are_classes(cls, value: str) -> str:
        parse_classes(value)
        return value

    @field_validator("secret_key")
    @classmethod
    def _keys_are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        SecretBox.of(value)
        return value

    @model_validator(mode="after")
    def _intervals_fit(self) -> "Settings":
        if self.heartbeat_seconds * 2 >= self.lease_seconds:
            raise ValueError("lease_seconds must be more than twice heartbeat_seconds: one beat may be late")
        if self.deadline_default_seconds > self.deadline_max_seconds:
            raise ValueError("deadline_default_seconds is longer than deadline_max_seconds")
        return self


def _of_scheme(value: SecretStr, schemes: tuple[str, ...]) -> SecretStr:
    # The message says what is expected and nothing of the value: it may be nothing but a password.
    if not value.get_secret_value().startswith(tuple(f"{scheme}://" for scheme in schemes)):
        raise ValueError(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    return value


def load_settings() -> Settings:
    """The settings of this process's environment.

    Raises:
        pydantic.ValidationError: a setting is missing or out of range.
    """
    return Settings()
