"""A database made by the migrations and emptied before each test; the API, running."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import uvicorn
from sqlalchemy import make_url, text

from ghosted_client import Client, Job
from services.app import create_app
from services.artifacts.storage import ArtifactStore, open_store
from services.auth.repository import create_key
from services.config import Settings
from services.db import migrate
from services.db.models import Base
from services.db.sessions import Database, open_database
from services.embedded import Stack
from tests.integration.services.commands import Run
from tests.integration.services.finished import finish
from tests.integration.services.helpers import SPEC, Server

BUCKET = "service-tests"


@pytest.fixture(scope="session")
def server_url(stack: Stack) -> str:
    """The address of a PostgreSQL server on which databases may be made."""
    return stack.database_url


@contextmanager
def _made(server_url: str, name: str) -> Iterator[str]:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def migrated_url(server_url: str) -> Iterator[str]:
    """The address of a database whose schema the migrations made."""
    with _made(server_url, "service_migrated") as url:
        migrate.upgrade(url)
        yield url


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """The address of a database without a schema."""
    with _made(server_url, "service_empty") as url:
        yield url


@pytest.fixture(scope="session")
def opened(migrated_url: str) -> Iterator[Database]:
    """The migrated database, open for the whole run."""
    database = open_database(migrated_url)
    yield database
    database.close()


@pytest.fixture
def database(opened: Database) -> Database:
    """The migrated database, with empty tables."""
    names = ", ".join(f'"{table.name}"' for table in Base.metadata.sorted_tables)
    with opened.write() as session:
        session.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    return opened


@pytest.fixture(scope="session")
def settings(stack: Stack, migrated_url: str) -> Settings:
    """The settings of a service on the stack's parts."""
    return Settings.model_validate(
        {
            "database_url": migrated_url,
            "redis_url": stack.redis_url,
            "s3_endpoint": stack.s3.endpoint,
            "s3_access_key": stack.s3.access_key,
            "s3_secret_key": stack.s3.secret_key,
            "s3_bucket": BUCKET,
            "s3_region": stack.s3.region,
            "api_port": 0,
            # Tests send and submit more than a user would.
            "requests_per_minute": 0,
            "jobs_per_day": 0,
            "queued_jobs_per_key": 0,
            # There is no Hub but in the tests of its own.
            "resolve_models": False,
        }
    )


@pytest.fixture(scope="session")
def store(settings: Settings) -> ArtifactStore:
    """A bucket of the tests' own."""
    made = open_store(settings)
    made.ensure_bucket()
    return made


@contextmanager
def serve(settings: Settings) -> Iterator[str]:
    """The API is served on loopback; yields its address."""
    config = uvicorn.Config(create_app(settings), host="127.0.0.1", port=0, log_level="error")
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


@pytest.fixture(scope="session")
def base_url(settings: Settings, store: ArtifactStore) -> Iterator[str]:
    """The address of the running API."""
    with serve(settings) as url:
        yield url


@pytest.fixture
def key(database: Database) -> str:
    """A key of the API."""
    with database.write() as session:
        return create_key(session, "tests")


@pytest.fixture
def server(base_url: str, key: str) -> Server:
    """Where the API is and how it is opened."""
    return Server(base_url, key)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of the running API."""
    with Client(server.url, server.key) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is still to be made."""
    return tmp_path / os.urandom(4).hex()


@pytest.fixture
def done(client: Client, database: Database, store: ArtifactStore) -> Job:
    """A job that has succeeded."""
    job = client.submit(SPEC)
    finish(database, store, job.id)
    return client.get(job.id)


@pytest.fixture
def other(server: Server, database: Database) -> Server:
    """The same API with another key."""
    with database.write() as session:
        return Server(server.url, create_key(session, "other"))


@pytest.fixture
def no_uploads(store: ArtifactStore) -> Iterator[None]:
    """What is uploaded is gone after the test."""
    yield
    store.delete_prefix("uploads/")


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line with the service's address and key in its environment, without profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GHOSTED_URL", server.url)
    monkeypatch.setenv("GHOSTED_API_KEY", server.key)
    return Run()
