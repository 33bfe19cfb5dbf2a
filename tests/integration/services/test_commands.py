import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ghosted_cli.service_progress import harmless, line_of
from ghosted_client import Client, Event, NotFoundError
from ghosted_core.spec import ReplaceMe
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.jobs import attempts
from services.jobs.failures import Failure
from tests.integration.services.commands import Run
from tests.integration.services.finished import FILES, MISSED, finish
from tests.integration.services.helpers import SPEC, Server, claim


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


def test_a_kept_result_is_pulled_though_its_job_failed(
    run: Run, client: Client, database: Database, store: ArtifactStore, folder: Path
) -> None:
    """Watching says how to have it and ends with 10; pulling brings all files and says what they are."""
    evaluation = {"gate": [{"metric": "perplexity", "max_ratio": 2}], "on_miss": "keep"}
    job = client.submit({**SPEC.model_dump(), "evaluation": evaluation})
    finish(database, store, job.id, failure=MISSED)
    assert f"is kept. Fetch it with: ghosted pull {job.id}" in run("watch", str(job.id), code=10)
    assert MISSED.message in run.errors("watch", str(job.id), code=10)
    assert "missed its quality gate" in run.errors("pull", str(job.id), str(folder), code=0)
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
    assert client.artifact(job.id).missed_gate
    printed = json.loads(run("pull", str(job.id), str(folder.with_name("other")), "--json"))
    assert printed["missed_gate"] is True


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


def test_the_service_can_be_a_profile(
    run: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile opens it; if others can read the key, a warning says what to do about it."""
    monkeypatch.delenv("GHOSTED_URL")
    monkeypatch.delenv("GHOSTED_API_KEY")
    file = tmp_path / "config/ghosted/profiles.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[mine]\nurl = "{server.url}"\nkey = "{server.key}"\n')
    file.chmod(0o600)
    run("jobs", "--profile", "mine")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in run.errors("jobs", "--profile", "mine", code=0)
    assert json.loads(run("jobs", "--profile", "yours", "--json", code=10))["error"]["code"] == "profile"


def test_a_submission_can_be_repeated(run: Run, client: Client) -> None:
    """The same key makes one job."""
    options = ("submit", "owner/tiny", "--layers", "2", "--idempotency-key", "mine", "--json")
    assert json.loads(run(*options))["id"] == json.loads(run(*options))["id"]
    assert len(client.list().items) == 1


@pytest.mark.parametrize("option", ["--validate", "--dry-run"])
def test_a_dry_run_submits_nothing(run: Run, client: Client, option: str) -> None:
    """It says what the service would do, in both forms, and refuses what submitting would refuse."""
    options = ("submit", "owner/tiny", "--remove", "1-2", option)
    assert json.loads(run(*options, "--json"))["spec"]["model"]["id"] == "owner/tiny"
    assert "would accept" in run(*options)
    run("submit", "smollm2-135m-instruct", "--layers", "900", option, code=10)
    assert client.list().items == ()


def test_a_hub_token_comes_from_the_environment_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent only if asked for, and then has to be there."""
    options = ("submit", "owner/tiny", "--layers", "2")
    monkeypatch.setenv("HF_TOKEN", "hf_no_ones")
    run(*options)
    # This service has nothing to seal tokens with, and says so.
    assert "Hub tokens" in run.errors(*options, "--hub-token", code=10)
    assert "Hub tokens" in run.errors(*options, "--hub-token", "--validate", code=10)
    monkeypatch.delenv("HF_TOKEN")
    assert "HF_TOKEN" in run.errors(*options, "--hub-token", code=10)


def test_a_job_is_tried_again_with_edits(run: Run, client: Client) -> None:
    """Options change the clone, and nothing else of it."""
    job = client.submit(SPEC, labels={"team": "a"})
    clone = json.loads(run("retry", str(job.id), "--layers", "1", "--no-evaluation", "--json"))
    assert (clone["retry_of"], clone["spec"]["layers"], clone["spec"]["evaluation"]) == (str(job.id), 1, None)
    assert clone["spec"]["recovery"] == client.get(job.id).spec["recovery"]
    named = json.loads(run("retry", str(job.id), "--remove", "1,3", "--label", "team=b", "--json"))
    assert (named["spec"]["strategy"]["name"], named["labels"]) == ("explicit", {"team": "b"})


def test_settings_of_a_repair_do_not_replace_another_one_unasked(run: Run, client: Client) -> None:
    """In a clone they need its name, for the job may have any repair."""
    job = client.submit(SPEC.model_copy(update={"recovery": ReplaceMe()}))
    assert "--recovery" in run.errors("retry", str(job.id), "--weighting", "skip_first", code=10)
    asked = ("--recovery", "replace_me", "--weighting", "skip_first", "--json")
    clone = json.loads(run("retry", str(job.id), *asked))
    assert (clone["spec"]["recovery"]["name"], clone["spec"]["recovery"]["weighting"]) == (
        "replace_me",
        "skip_first",
    )


def test_jobs_are_filtered(run: Run, client: Client) -> None:
    """By state, label and time of submission."""
    job = client.submit(SPEC, labels={"team": "a"})
    client.submit(SPEC)

    def found(*options: str) -> list[str]:
        return [item["id"] for item in json.loads(run("jobs", *options, "--json"))["items"]]

    assert found("--label", "team=a", "--model", "owner/tiny", "--since", "2026-01-01") == [str(job.id)]
    assert found("--state", "running") == found("--until", "2020-01-01T00:00") == []
    assert len(found("--limit", "1")) == 1


def test_events_are_printed_so_far_or_to_the_end(
    run: Run, client: Client, database: Database, store: ArtifactStore
) -> None:
    """A line each, for people or as JSON; --follow ends with the job."""
    job = client.submit(SPEC)
    assert "submitted" in run("events", str(job.id))
    finish(database, store, job.id)
    lines = run("events", str(job.id), "--follow", "--after", "1", "--json").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["claimed", "succeeded"]


def test_the_log_is_printed(run: Run, client: Client, database: Database) -> None:
    """Its end, and with --follow what comes after, each line once."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    for message in ("one", "two", "three\033[2J"):
        with database.write() as session:
            attempts.record_event(session, fence, "log", {"message": message, "level": "info"})
    assert [line.split()[-1] for line in run("logs", str(job.id), "--lines", "2").splitlines()] == [
        "two",
        "three?[2J",
    ]
    with database.write() as session:
        attempts.finish_cancelled(session, fence)
    followed = run("logs", str(job.id), "--follow", "--json").splitlines()
    assert [json.loads(line)["message"] for line in followed] == ["one", "two", "three\033[2J"]


def test_deleting_asks_first(run: Run, client: Client, server: Server) -> None:
    """Without a terminal it needs --yes; on one, another answer than yes deletes nothing."""
    job = client.submit(SPEC)
    client.cancel(job.id)
    assert "--yes" in run.errors("delete", str(job.id), code=10)
    assert on_terminal(server, "delete", str(job.id), answer="n").code == 10
    assert client.get(job.id).done
    assert on_terminal(server, "delete", str(job.id), answer="y").code == 0
    with pytest.raises(NotFoundError):
        client.get(job.id)
    other = client.submit(SPEC)
    assert json.loads(run("delete", str(other.id), "--yes", "--json", code=10))["error"]["code"] == (
        "job_not_finished"
    )


def test_a_terminal_gets_bars_and_a_file_gets_lines(
    run: Run, server: Server, client: Client, database: Database, store: ArtifactStore
) -> None:
    """Only what is shown on a terminal moves the cursor; the result on stdout is plain either way."""
    job = client.submit(SPEC)
    fence = claim(database, job.id).fence
    with database.write() as session:
        attempts.record_stage(session, fence, "calibrate", total=10)
        attempts.finish_cancelled(session, fence)
    shown = on_terminal(server, "watch", str(job.id))
    assert shown.code == 10
    assert "\033[" in shown.terminal
    assert "calibrate" in shown.terminal
    assert shown.stdout == f"{job.id}  cancelled\n"
    assert "\033[" not in run.errors("watch", str(job.id), code=10)


def test_watching_can_end_before_the_job(run: Run, client: Client) -> None:
    """After --timeout seconds, with the code that says that another try may succeed."""
    job = client.submit(SPEC)
    error = json.loads(run("watch", str(job.id), "--timeout", "0.1", "--json", code=20))["error"]
    assert error["code"] == "wait_timeout"


@dataclass(frozen=True)
class Shown:
    """What a command did with stdin and stderr on a terminal."""

    code: int
    stdout: str
    terminal: str


def on_terminal(server: Server, *arguments: str, answer: str = "") -> Shown:
    """The command, run as a process of its own."""
    leader, follower = pty.openpty()
    environment = {
        "GHOSTED_URL": server.url,
        "GHOSTED_API_KEY": server.key,
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    os.write(leader, answer.encode() + b"\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ghosted_cli", *arguments],
        env={**os.environ, **environment},
        stdin=follower,
        stderr=follower,
        stdout=subprocess.PIPE,
    )
    os.close(follower)
    said = bytearray()
    # Linux says that the other end is closed by an error.
    with suppress(OSError):
        while piece := os.read(leader, 4096):
            said += piece
    stdout, _ = process.communicate(timeout=60)
    os.close(leader)
    return Shown(process.returncode, stdout.decode(), said.decode())


@pytest.mark.parametrize(
    ("kind", "payload", "line"),
    [
        ("log", {"message": "a\033[0mb\n"}, "a?[0mb?"),
        ("metric", {"name": "perplexity", "value": None, "reason": "infinite"}, "perplexity = infinite"),
        ("metric", {"name": "perplexity", "value": 12.3456}, "perplexity = 12.35"),
        ("stage_started", {"stage": "load"}, "load: started"),
        ("layers_chosen", {"removed": [3, 4], "layer_count": 6}, "2 of 6 layers go"),
        ("cancel_requested", {}, "cancel requested"),
    ],
)
def test_events_are_lines(kind: str, payload: dict[str, object], line: str) -> None:
    """Each event is one harmless line."""
    event = Event.model_validate(
        {"number": 1, "attempt": 1, "type": kind, "payload": payload, "at": "2026-01-01T00:00:00Z"}
    )
    assert line_of(event) == line == harmless(line)
