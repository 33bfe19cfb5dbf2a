import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghosted_cli.service_commands import app
from ghosted_cli.service_progress import harmless, line_of
from ghosted_client import Client, Event
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.failures import Failure
from tests.integration.services.finished import FILES, finish
from tests.integration.services.helpers import SPEC, Server, claim


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> "Run":
    """The command line with the service's address and key in its environment."""
    monkeypatch.setenv("GHOSTED_URL", server.url)
    monkeypatch.setenv("GHOSTED_API_KEY", server.key)
    return Run()


class Run:
    """Runs a command."""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it printed on stdout, once it ended with `code`."""
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.stdout

    def errors(self, *arguments: str, code: int) -> str:
        """What it printed on stderr, once it ended with `code`."""
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.stderr


def test_a_job_is_submitted_as_the_options_say(run: Run, client: Client) -> None:
    """Options become the spec's fields, labels and deadline."""
    options = ("--layers", "2", "--recovery", "none", "--sequences", "3", "--no-evaluation")
    printed = run("submit", "owner/tiny", *options, "--label", "team=a", "--deadline", "60", "--json")
    job = client.get(json.loads(printed)["id"])
    assert job.spec["model"] == {"kind": "hub", "id": "owner/tiny", "revision": None}
    assert (job.spec["layers"], job.spec["recovery"], job.spec["evaluation"]) == (2, {"name": "none"}, None)
    assert job.spec["calibration"]["sequences"] == 3
    assert (job.labels, job.deadline_seconds) == ({"team": "a"}, 60)


def test_jobs_are_listed(run: Run, client: Client) -> None:
    """Both forms of the list name the jobs and where they stand."""
    job = client.submit(SPEC)
    assert [item["id"] for item in json.loads(run("jobs", "--json"))["items"]] == [str(job.id)]
    assert str(job.id) in run("jobs")


def test_a_job_is_cancelled_once(run: Run, client: Client) -> None:
    """The second time is an error with the service's code and exit code 10."""
    job = client.submit(SPEC)
    assert json.loads(run("cancel", str(job.id), "--json"))["state"] == "cancelled"
    assert json.loads(run("cancel", str(job.id), "--json", code=10))["error"]["code"] == "job_finished"


def test_watching_a_good_job_ends_with_zero(
    run: Run, client: Client, database: Database, store: ArtifactStore
) -> None:
    """The job as it ended is on stdout."""
    job = client.submit(SPEC)
    finish(database, store, job.id)
    assert json.loads(run("watch", str(job.id), "--json"))["state"] == "succeeded"
    assert f"ghosted pull {job.id}" in run("watch", str(job.id))


@pytest.mark.parametrize(("retryable", "code"), [(False, 10), (True, 20)])
def test_watching_a_failed_job_says_why(
    run: Run, client: Client, database: Database, *, retryable: bool, code: int
) -> None:
    """Message and advice are on stderr; the exit code tells whether another time may help."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    with database.write() as session:
        attempts.finish_failed(
            session, fence, Failure("x", "it \033[2Jbroke", "Mend it.", retryable=retryable)
        )
    said = run.errors("watch", str(job.id), code=code)
    assert "Error (x), attempt 1: it ?[2Jbroke" in said
    assert "Mend it." in said


def test_an_artifact_is_pulled(
    run: Run, client: Client, database: Database, store: ArtifactStore, folder: Path
) -> None:
    """The folder holds the files; the links, which are secrets, are not printed."""
    job = client.submit(SPEC)
    finish(database, store, job.id)
    printed = json.loads(run("pull", str(job.id), str(folder), "--json"))
    assert {file["path"] for file in printed["files"]} == set(FILES)
    assert "Signature" not in json.dumps(printed)
    assert (folder / "config.json").read_bytes() == FILES["config.json"]


def test_the_key_can_lie_in_a_file(
    run: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key the service refuses; a key file opens it; a missing one is told."""
    monkeypatch.delenv("GHOSTED_API_KEY")
    run("jobs", code=10)
    (tmp_path / "key").write_text(server.key + "\n")
    run("jobs", "--key-file", str(tmp_path / "key"))
    assert "cannot be read" in run.errors("jobs", "--key-file", str(tmp_path / "none"), code=10)


def test_a_wrong_spec_does_not_reach_the_service(run: Run, client: Client) -> None:
    """What the spec itself refuses is told without a request."""
    assert "layers" in run.errors("submit", "owner/tiny", code=10)
    assert "NAME=TEXT" in run.errors("submit", "owner/tiny", "--layers", "1", "--label", "x", code=10)
    assert client.list().items == ()


@pytest.mark.parametrize(
    ("kind", "payload", "line"),
    [
        ("log", {"message": "a\033[0mb\n"}, "a?[0mb?"),
        ("metric", {"name": "perplexity", "value": None, "reason": "infinite"}, "perplexity = infinite"),
        ("metric", {"name": "perplexity", "value": 12.3456}, "perplexity = 12.35"),
        ("stage_started", {"stage": "load"}, "load: started"),
        ("cancel_requested", {}, "cancel requested"),
    ],
)
def test_events_are_lines(kind: str, payload: dict[str, object], line: str) -> None:
    """Each event is one harmless line."""
    event = Event.model_validate(
        {"number": 1, "attempt": 1, "type": kind, "payload": payload, "at": "2026-01-01T00:00:00Z"}
    )
    assert line_of(event) == line == harmless(line)
