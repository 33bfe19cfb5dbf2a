"""The code in the documents runs."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from services.artifacts.storage import ArtifactStore
from services.db.models import Job
from services.db.sessions import Database
from services.jobs.states import JobState
from tests.integration.services.finished import FILES, finish
from tests.integration.services.helpers import Server

ROOT = Path(__file__).parents[3]
ADDRESS = "http://127.0.0.1:8000"


def _snippets() -> list[tuple[str, str]]:
    """Each piece of Python with our client in it, and where it stands."""
    documents = (ROOT / "docs" / "client.md", ROOT / "README.md")
    found = [
        (file.name, re.findall(r"```python\n(.*?)```", file.read_text(), re.DOTALL)) for file in documents
    ]
    return [(name, code) for name, codes in found for code in codes if "ghosted_client" in code]


@pytest.fixture
def _worked(database: Database, store: ArtifactStore) -> Iterator[None]:
    """Every job that is submitted succeeds."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.1):
            with database.read() as session:
                waiting = session.scalars(select(Job.id).where(Job.state == JobState.QUEUED)).all()
            for job_id in waiting:
                finish(database, store, job_id)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("_worked")
@pytest.mark.parametrize(("name", "code"), _snippets(), ids=lambda part: part[:12])
def test_a_snippet_runs(
    name: str, code: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands, with the address and key of a service: it ends with the artifact in its folder."""
    monkeypatch.chdir(tmp_path)
    assert ADDRESS in code
    exec(compile(code.replace(ADDRESS, server.url), name, "exec"), {"key": server.key})  # noqa: S102
    (folder,) = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert (folder / "config.json").read_bytes() == FILES["config.json"]


def test_there_are_snippets() -> None:
    """Both clients and the README's."""
    text = "".join(code for _, code in _snippets())
    assert len(_snippets()) >= 3
    assert "AsyncClient" in text
