"""The commands of docker-compose.yml that are ours, each run as it stands there, outside a container."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import make_url

from services.embedded import Stack
from services.embedded.ports import LOOPBACK, find_free
from tests.compose_outside import SERVICES, Outside, ended, stop, wait


@pytest.fixture(scope="module")
def database_url(stack: Stack) -> Iterator[str]:
    """A database without a schema."""
    name = "compose_commands"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield make_url(stack.database_url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def outside(
    stack: Stack, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outside]:
    """A service of the compose file on the embedded parts."""
    folder = tmp_path_factory.mktemp("compose")
    changed = {
        "GHOSTED_DATABASE_URL": database_url,
        "GHOSTED_REDIS_URL": stack.redis_url,
        "GHOSTED_S3_ENDPOINT": stack.s3.endpoint,
        "GHOSTED_S3_PUBLIC_ENDPOINT": stack.s3.endpoint,
        "GHOSTED_S3_ACCESS_KEY": stack.s3.access_key,
        "GHOSTED_S3_SECRET_KEY": stack.s3.secret_key,
        "GHOSTED_API_HOST": LOOPBACK,
        "GHOSTED_API_PORT": str(find_free(1)[0]),
        "GHOSTED_CACHE": str(folder / "cache"),
        "GHOSTED_SCRATCH": str(folder / "scratch"),
        "GHOSTED_READY_FILE": str(folder / "ready"),
    }
    return lambda name: Outside(name, folder, changed)


@pytest.fixture(scope="module")
def prepared(outside: Callable[[str], Outside]) -> Callable[[str], Outside]:
    """The same, once the services that are to end have ended."""
    for name in ("s3-bucket", "migrate"):
        service = outside(name)
        assert service.run() == 0, service.log.read_text()
    return outside


@pytest.mark.parametrize("name", ["s3-bucket", "migrate"])
def test_what_is_done_can_be_done_again(prepared: Callable[[str], Outside], name: str) -> None:
    """Every `docker compose up` runs the one-shot services; the second time they find nothing to do."""
    assert prepared(name).run() == 0


@pytest.mark.parametrize("name", ["api", "relay", "worker"])
def test_a_service_becomes_healthy_and_ends(prepared: Callable[[str], Outside], name: str) -> None:
    """Its own health check says well, and SIGTERM ends it with 0 in the time that it has."""
    service = prepared(name)
    with ended(service.start()) as process:
        wait(service.healthy, process, service.log)
        assert stop(process, name) == 0, service.log.read_text()


def test_the_worker_is_healthy_while_it_takes_jobs(prepared: Callable[[str], Outside]) -> None:
    """Ready without a connection is not enough, and a worker that was stopped is not ready."""
    worker = prepared("worker")
    unused = f"redis://{LOOPBACK}:{find_free(1)[0]}/0"
    cut_off = Outside("worker", worker.folder, {**worker.changed, "GHOSTED_REDIS_URL": unused})
    assert not worker.healthy()
    with ended(worker.start()) as process:
        wait(worker.healthy, process, worker.log)
        assert not cut_off.healthy()
        assert stop(process, "worker") == 0
    assert not worker.healthy()


def test_an_idle_worker_ends_at_once(prepared: Callable[[str], Outside]) -> None:
    """A worker without a job needs none of the time that it has to stop."""
    worker = prepared("worker")
    with ended(worker.start()) as process:
        wait(worker.healthy, process, worker.log)
        before = time.monotonic()
        stop(process, "worker")
        assert time.monotonic() - before < 15


@pytest.mark.parametrize("name", ["api", "relay"])
def test_nobody_there_is_unhealthy(prepared: Callable[[str], Outside], name: str) -> None:
    """The health check of what does not run fails: nothing listens, or nothing is connected to that port."""
    (unused,) = find_free(1)
    away = {
        "GHOSTED_API_PORT": str(unused),
        "GHOSTED_DATABASE_URL": f"postgresql://nobody@{LOOPBACK}:{unused}/none",
    }
    service = prepared(name)
    assert not Outside(name, service.folder, {**service.changed, **away}).healthy()


def test_settings_that_are_missing_end_a_service(prepared: Callable[[str], Outside]) -> None:
    """Without a setting that it needs a service ends with an error instead of guessing."""
    service = prepared("migrate")
    environment = {key: value for key, value in service.environment.items() if key != "GHOSTED_DATABASE_URL"}
    command = [sys.executable, *SERVICES["migrate"]["command"][1:]]
    done = subprocess.run(
        command, check=False, env=environment, cwd=service.folder, capture_output=True, text=True, timeout=30
    )
    assert done.returncode != 0
    assert "database_url" in done.stderr
