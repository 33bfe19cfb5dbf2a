"""The API as a process, with other settings, and with parts that are missing."""

import re
import signal
import subprocess
import sys
import time

import httpx2
import pytest

from services.app import create_app
from services.artifacts.storage import open_store
from services.config import Settings
from services.db import migrate
from services.db.sessions import Database
from services.embedded.ports import find_free
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server, environment, submit


def test_without_keys_everyone_sees_every_job(settings: Settings, database: Database) -> None:
    """Where authentication is off, requests need no key, and jobs have no owner."""
    job_id = submit(database)
    with serve(settings.model_copy(update={"auth_enabled": False})) as url:
        listed = httpx2.get(f"{url}/v1/jobs").json()["items"]
        made = httpx2.post(f"{url}/v1/jobs", json={"model": "owner/tiny", "layers": 1})
    assert [job["id"] for job in listed] == [str(job_id)]
    assert made.status_code == 202


def test_the_public_address_leads_to_the_job(settings: Settings, server: Server) -> None:
    """Where the users reach the API elsewhere, Location says so."""
    public = settings.model_copy(update={"public_base_url": "https://ghosted.example.org/"})
    with serve(public) as url:
        response = Server(url, server.key).submit({"model": "owner/tiny", "layers": 1})
    assert response.headers["location"] == f"https://ghosted.example.org/v1/jobs/{response.json()['id']}"


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("database", {"database_url": "postgresql://nobody:hush@127.0.0.1:1/none"}),
        ("broker", {"redis_url": "redis://:hush@127.0.0.1:1/0"}),
        ("object_store", {"s3_endpoint": "http://127.0.0.1:1"}),
    ],
)
def test_readiness_names_the_part_that_is_missing(
    settings: Settings, database: Database, part: str, broken: dict[str, str]
) -> None:
    """One part is away: 503, its name, and nothing about where it was looked for; the process still lives."""
    changed = Settings.model_validate({**settings.model_dump(), **broken})
    with serve(changed) as url:
        response = httpx2.get(f"{url}/readyz", timeout=30)
        assert httpx2.get(f"{url}/healthz").status_code == 200
    assert response.status_code == 503
    assert [name for name, said in response.json()["parts"].items() if said != "ok"] == [part]
    assert "hush" not in response.text
    assert "127.0.0.1" not in response.text


def test_a_database_that_is_away_is_a_problem(settings: Settings) -> None:
    """A request meets 503 and not a page of the server's own."""
    gone = Settings.model_validate(
        {**settings.model_dump(), "database_url": "postgresql://nobody:hush@127.0.0.1:1/none"}
    )
    with serve(gone) as url:
        response = Server(url, f"ghosted_00000000_{'a' * 43}").request("GET", "/v1/jobs")
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
    assert "hush" not in response.text


def test_an_old_schema_is_not_ready(settings: Settings, empty_url: str) -> None:
    """Before the migrations ran, the API says that it is not ready."""
    early = Settings.model_validate({**settings.model_dump(), "database_url": empty_url})
    with serve(early) as url:
        assert migrate.head() in httpx2.get(f"{url}/readyz").json()["parts"]["database"]
        migrate.upgrade(empty_url)
        assert httpx2.get(f"{url}/readyz").json()["parts"]["database"] == "ok"


def test_the_migrations_are_a_command(settings: Settings, empty_url: str) -> None:
    """`python -m services.db.migrate` brings the settings' database to the head."""
    early = Settings.model_validate({**settings.model_dump(), "database_url": empty_url})
    subprocess.run(
        [sys.executable, "-m", "services.db.migrate"],
        env=environment(early),
        check=True,
        timeout=60,
        capture_output=True,
    )
    migrate.check(empty_url)


def test_the_api_is_a_command(settings: Settings, database: Database) -> None:
    """`python -m services.api` serves, and ends well on SIGTERM."""
    (port,) = find_free(1)
    chosen = settings.model_copy(update={"api_port": port, "log_level": "error"})
    process = subprocess.Popen([sys.executable, "-m", "services.api"], env=environment(chosen))
    try:
        assert _answers(f"http://127.0.0.1:{port}/healthz", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.wait()


def _answers(url: str, process: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            return httpx2.get(url).status_code == 200
        except httpx2.ConnectError:
            time.sleep(0.05)
    return False


def test_importing_connects_to_nothing() -> None:
    """An application can be made, and described, without any part being there."""
    settings = Settings.model_validate(
        {
            "database_url": "postgresql://127.0.0.1:1/x",
            "redis_url": "redis://127.0.0.1:1",
            "s3_access_key": "a",
            "s3_secret_key": "b",
        }
    )
    assert re.match(r"3\.", create_app(settings).openapi()["openapi"])


def test_the_bucket_is_a_command(settings: Settings) -> None:
    """`python -m services.artifacts` makes the settings' bucket, and once more changes nothing."""
    fresh = settings.model_copy(update={"s3_bucket": "made-by-command"})
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-m", "services.artifacts"],
            env=environment(fresh),
            check=True,
            timeout=60,
            capture_output=True,
        )
    open_store(fresh).check()
