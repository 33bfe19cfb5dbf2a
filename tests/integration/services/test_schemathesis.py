"""The running service against its own description, by an independent program."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.auth.scopes import ALL_SCOPES
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.failures import Failure
from tests.integration.services.finished import finish
from tests.integration.services.helpers import Server, claim

SETTINGS = Path(__file__).with_name("schemathesis.toml")
PROGRAM = Path(sysconfig.get_path("scripts")) / "schemathesis"
LIMIT_SECONDS = 900
EXCLUDED = 1


@pytest.fixture
def server(base_url: str, database: Database) -> Server:
    """The API with a key of every scope, so that no operation is described only by its refusal."""
    with database.write() as session:
        return Server(base_url, create_key(session, "tests", scopes=ALL_SCOPES))


@pytest.fixture
def ended(server: Server, database: Database, store: ArtifactStore) -> None:
    """Jobs in states that requests alone do not reach, so that lists show them."""
    ids = [server.submit({"model": "owner/tiny", "layers": 2}).json()["id"] for _ in range(3)]
    finish(database, store, ids[0])
    with database.write() as session:
        attempts.finish_failed(
            session, claim(database, ids[1]).fence, Failure("unsafe_model", "pickles", "Use others.", "load")
        )
    fence = claim(database, ids[2], lease_seconds=3600).fence
    with database.write() as session:
        attempts.record_stage(session, fence, "evaluate", total=10)
        attempts.record_metric(session, fence, "perplexity", float("inf"), {"stderr": float("nan")})


def test_the_service_is_as_described(server: Server, ended: None, tmp_path: Path) -> None:
    """All default checks of schemathesis pass, by examples, at the bounds, at random and along links."""
    operations = server.request("GET", "/openapi.json").json()["paths"].values()
    finished = subprocess.run(
        [
            str(PROGRAM),
            f"--config-file={SETTINGS}",
            "run",
            f"{server.url}/openapi.json",
            f"--header=Authorization: Bearer {server.key}",
            "--seed=20261129",
            "--phases=examples,coverage,fuzzing,stateful",
            "--continue-on-failure",
            "--request-timeout=60",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=LIMIT_SECONDS,
        # The service is in this process; its hub is asked by nobody.
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr[-2000:]
    (tested,) = re.findall(r"Tested: (\d+)", finished.stdout)
    assert int(tested) == sum(len(one) for one in operations) - EXCLUDED
    assert not re.search(r"Stateful.*\n.*[Ss]kipped", finished.stdout)
