"""A database made by the migrations and emptied before each test; the API, running."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ghosted_client import Client, Job
from services.artifacts.storage import ArtifactStore, open_store
from services.auth.repository import create_key
from services.config import Settings
from services.db import migrate
from services.db.sessions import Database, open_database
from services.embedded import Stack
from tests.integration.services.commands import Run
from tests.integration.services.finished import finish
from tests.integration.services.helpers import SPEC, Server
from tests.serving import empty, made_database, serve, settings_on


@pytest.fixture(scope="session")
def server_url(stack: Stack) -> str:
    """The address of a PostgreSQL server on which databases may be made."""
    return stack.database_url


@pytest.fixture(scope="session")
def migrated_url(server_url: str) -> Iterator[str]:
    """The address of a database whose schema the migrations made."""
    with made_database(server_url, "service_migrated") as url:
        migrate.upgrade(url)
        yield url


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """The address of a database without a schema."""
    with made_database(server_url, "service_empty") as url:
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
    empty(opened)
    return opened


@pytest.fixture(scope="session")
def settings(stack: Stack, migrated_url: str) -> Settings:
    """The settings of a service on the stack's parts."""
    return settings_on(stack, migrated_url)


@pytest.fixture(scope="session")
def store(settings: Settings) -> ArtifactStore:
    """A bucket of the tests' own."""
    made = open_store(settings)
    made.ensure_bucket()
    return made


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
