"""A database made by the migrations, emptied before each test."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text

from services.db import migrate
from services.db.models import Base
from services.db.sessions import Database, open_database

NOBODY = 65534


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _as_nobody(*arguments: str) -> list[str]:
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*(drop if os.geteuid() == 0 else []), *arguments]


def _wait(url: str, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(100):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                raise
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(url)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a PostgreSQL server with nothing in it."""
    binaries = Path(subprocess.check_output(["pg_config", "--bindir"], text=True).strip())
    # Not pytest's folder: another user must be able to enter it, and socket paths are short.
    folder = Path(tempfile.mkdtemp(prefix="ghosted-pg-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    port = _free_port()
    initdb = [str(binaries / "initdb"), "-D", str(folder / "data"), "-U", "ghosted", "-A", "trust"]
    subprocess.run(
        _as_nobody(*initdb, "-E", "UTF8", "--no-sync"), check=True, stdout=subprocess.DEVNULL, cwd="/"
    )
    start = [str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
    server = subprocess.Popen(
        _as_nobody(*start, "-h", "127.0.0.1", "-k", str(folder), "-c", "fsync=off"),
        cwd="/",
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://ghosted@127.0.0.1:{port}/postgres"
    try:
        _wait(url, server)
        yield url
    finally:
        server.send_signal(2)
        server.wait(timeout=20)
        shutil.rmtree(folder)


def _create(server_url: str, name: str) -> str:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def migrated_url(server_url: str) -> str:
    """The address of a database whose schema the migrations made."""
    url = _create(server_url, "migrated")
    migrate.upgrade(url)
    return url


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """The address of a database without a schema."""
    url = _create(server_url, "empty")
    yield url
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE empty WITH (FORCE)")


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
