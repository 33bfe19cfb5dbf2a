"""A stack of these tests' own, whose parts are stopped and started in place, and real processes on it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from redis import Redis
from sqlalchemy import make_url, text

from services.artifacts.storage import ArtifactStore, open_store
from services.db import migrate
from services.db.sessions import Database, open_database
from services.embedded import Stack, remove_stack
from tests.faults.jobs import Jobs
from tests.faults.parts import Parts
from tests.faults.processes import Processes, variables
from worker.config import WorkerSettings

NAME = "faults"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures of this run, one a line, whichever process found them."""
    reports = [one for several in terminalreporter.stats.values() for one in several]
    lines = [
        f"{one.nodeid.rpartition('::')[2]}: {name} {value}"
        for one in reports
        if isinstance(one, pytest.TestReport) and one.when == "call"
        for name, value in one.user_properties
    ]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Note a measured figure; it is shown at the end of the run."""

    def note(name: str, value: object) -> None:
        shown = f"{value:.1f}" if isinstance(value, float) else str(value)
        request.node.user_properties.append((name, shown))

    return note


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """PostgreSQL, Redis and S3 that nobody else uses."""
    folder = tmp_path_factory.mktemp("faults") / "data"
    with Stack.start(folder) as running:
        yield running
    remove_stack(folder)


@pytest.fixture(scope="session")
def parts(stack: Stack) -> Parts:
    """The stack's parts, to be stopped and started."""
    return Parts.of(stack)


@pytest.fixture(scope="session")
def settings(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> WorkerSettings:
    """Production values, but for a few that only tests of seconds need otherwise."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
    url = make_url(stack.database_url).set(database=NAME).render_as_string(hide_password=False)
    migrate.upgrade(url)
    return WorkerSettings.model_validate(
        {
            "database_url": url,
            "redis_url": stack.redis_url,
            "s3_endpoint": stack.s3.endpoint,
            "s3_access_key": stack.s3.access_key,
            "s3_secret_key": stack.s3.secret_key,
            "s3_bucket": stack.s3.bucket,
            "cache": tmp_path_factory.mktemp("cache"),
            "device": "cpu",
            "auth_enabled": False,
            "requests_per_minute": 0,
            "jobs_per_day": 0,
            "queued_jobs_per_key": 0,
            # There is no Hub here.
            "resolve_models": False,
        }
    )


@pytest.fixture(scope="session")
def opened(settings: WorkerSettings) -> Iterator[Database]:
    """The database, open for the whole run."""
    database = open_database(settings.database_url.get_secret_value())
    yield database
    database.close()


@pytest.fixture
def database(opened: Database, settings: WorkerSettings) -> Database:
    """The database without jobs, and a broker without messages."""
    with opened.write() as session:
        session.execute(text("TRUNCATE jobs CASCADE"))
    with Redis.from_url(settings.redis_url.get_secret_value()) as broker:
        broker.flushall()
    return opened


@pytest.fixture(scope="session")
def store(settings: WorkerSettings) -> ArtifactStore:
    """The object store."""
    return open_store(settings)


@pytest.fixture
def processes(settings: WorkerSettings, database: Database, tmp_path: Path) -> Iterator[Processes]:
    """Starts processes of the service; none of them is left after the test."""
    started = Processes(variables(settings), tmp_path)
    yield started
    started.end()
    for one in started.started:
        # Shown where the test failed.
        print(f"{one.log.name}:\n{one.log.read_text(errors='replace')[-4000:]}")  # noqa: T201


@pytest.fixture
def jobs(database: Database, store: ArtifactStore) -> Jobs:
    """Jobs in the database, and what they left in the object store."""
    return Jobs(database, store)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition, and fail with what was waited for."""

    def wait(condition: Callable[[], object], *, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, condition
            time.sleep(0.1)

    return wait
