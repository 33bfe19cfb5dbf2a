"""Parts of the service for tests: a database of their own, settings on the stack, the API on loopback."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import uvicorn
from sqlalchemy import make_url, text

from services.app import create_app
from services.config import Settings
from services.db.models import Base
from services.db.sessions import Database
from services.embedded import Stack

BUCKET = "service-tests"


@contextmanager
def made_database(server_url: str, name: str) -> Iterator[str]:
    """A new database without a schema; it is gone afterwards."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def empty(database: Database) -> None:
    """The tables are there and empty."""
    names = ", ".join(f'"{table.name}"' for table in Base.metadata.sorted_tables)
    with database.write() as session:
        session.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))


def settings_on(stack: Stack, database_url: str, **changes: Any) -> Settings:
    """The settings of a service on the stack's parts."""
    return Settings.model_validate(
        {
            "database_url": database_url,
            "redis_url": stack.redis_url,
            "s3_endpoint": stack.s3.endpoint,
            "s3_access_key": stack.s3.access_key,
            "s3_secret_key": stack.s3.secret_key,
            "s3_bucket": BUCKET,
            "s3_region": stack.s3.region,
            "api_port": 0,
            # Tests send and submit more than a user would.
            "requests_per_minute": 0,
            "failed_keys_per_minute": 0,
            "jobs_per_day": 0,
            "queued_jobs_per_key": 0,
            # There is no Hub but in the tests of its own.
            "resolve_models": False,
            **changes,
        }
    )


@contextmanager
def serve(settings: Settings, *, graceful_seconds: int | None = None) -> Iterator[str]:
    """The API is served on loopback, at the port of the settings; yields its address.

    Requests that still run at the end have `graceful_seconds`: a browser's streams would go on for ever.
    """
    # As `services.api` does it: uvicorn itself would believe whoever is on this machine.
    config = uvicorn.Config(
        create_app(settings),
        host="127.0.0.1",
        port=settings.api_port,
        log_level="error",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=graceful_seconds,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the API did not start")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
