"""Commands about what a service has beside jobs, and that bring it texts."""

import json
from pathlib import Path

import pytest

from ghosted_client import Client, NotFoundError
from services.auth.repository import create_key
from services.auth.scopes import Scope
from services.db.models import Worker
from services.db.sessions import Database
from tests.integration.services.commands import Run
from tests.integration.services.helpers import Server


def test_a_submission_with_a_file_cannot_be_repeated(run: Run, server: Server, tmp_path: Path) -> None:
    """Each upload is another one, so a key with a file is refused, with advice, and nothing is sent."""
    file = tmp_path / "corpus.txt"
    file.write_text("The fox.\n")
    options = ("--layers", "2", "--calibration", str(file), "--idempotency-key", "mine", "--json")
    refused = json.loads(run("submit", "owner/tiny", *options, code=10))["error"]
    assert (refused["code"], "Leave the key out" in str(refused)) == ("invalid_spec", True)


def test_a_file_is_uploaded_to_calibrate_on(run: Run, client: Client, tmp_path: Path) -> None:
    """The job names the upload; a dry run leaves none behind, nor does a submission that is refused."""
    file = tmp_path / "corpus.txt"
    file.write_text("The fox.\n\nThe dog.\n")
    options = ("submit", "owner/tiny", "--layers", "2", "--calibration", str(file), "--json")
    looked = json.loads(run(*options, "--validate"))["spec"]["calibration"]["dataset"]
    assert looked["kind"] == "upload"
    with pytest.raises(NotFoundError):
        client.delete_upload(looked["id"])
    job = json.loads(run(*options))
    assert job["spec"]["calibration"]["dataset"]["kind"] == "upload"
    refused = run(*options, "--deadline", "999999999", code=10)
    assert json.loads(refused)["error"]["code"] == "invalid_request"
    missing = run("submit", "owner/tiny", "--layers", "2", "--calibration", "./no.txt", "--json", code=10)
    assert json.loads(missing)["error"]["code"] == "data_not_found"


def test_files_are_uploaded_to_evaluate_on(run: Run, client: Client, tmp_path: Path) -> None:
    """As the evaluation's own text and as corpora; a file in two places is one upload."""
    file, other = tmp_path / "own.txt", tmp_path / "mine.jsonl"
    file.write_text("The fox.\n\nThe dog.\n")
    other.write_text('{"text": "The cat."}\n')
    named = ("--evaluation", str(file), "--corpus", f"mine={other}", "--corpus", f"same={file}")
    options = ("submit", "owner/tiny", "--layers", "2", *named, "--corpus", "wikitext2", "--json")
    looked = json.loads(run(*options, "--validate"))["spec"]["evaluation"]
    assert list(client.uploads()) == []
    assert [corpus["name"] for corpus in looked["corpora"]] == ["mine", "same", "wikitext2"]
    told = json.loads(run(*options))["spec"]["evaluation"]
    ids = [told["dataset"]["id"], *(corpus["dataset"]["id"] for corpus in told["corpora"][:2])]
    assert ids[0] == ids[2] != ids[1]
    assert {str(upload.id) for upload in client.uploads()} == set(ids)
    assert ids[0] in run("uploads")
    assert {one["id"] for one in json.loads(run("uploads", "--json"))["items"]} == set(ids)


def test_files_are_uploaded_to_train_on(run: Run, client: Client, tmp_path: Path) -> None:
    """By `submit` and by `retry`, which takes another text for a clone; one that is refused leaves none."""
    file, other = tmp_path / "own.txt", tmp_path / "other.txt"
    file.write_text("The fox.\n\nThe dog.\n")
    other.write_text("The cat.\n")
    options = ("--layers", "2", "--finetune-with", f"epochs=1,dataset={file}", "--json")
    job = json.loads(run("submit", "owner/tiny", *options))
    text = job["spec"]["finetune"]["dataset"]
    assert (text["kind"], job["spec"]["finetune"]["epochs"]) == ("upload", 1)
    clone = json.loads(run("retry", job["id"], "--calibration", str(other), "--tasks", "boolq", "--json"))
    assert clone["spec"]["finetune"] == job["spec"]["finetune"]
    assert [task["name"] for task in clone["spec"]["evaluation"]["tasks"]] == ["boolq"]
    new = clone["spec"]["calibration"]["dataset"]
    assert {str(upload.id) for upload in client.uploads()} == {text["id"], new["id"]}
    run("retry", job["id"], "--calibration", str(other), "--deadline", "999999999", code=10)
    assert {str(upload.id) for upload in client.uploads()} == {text["id"], new["id"]}


def test_what_the_service_has_is_listed(run: Run, base_url: str, database: Database, tmp_path: Path) -> None:
    """Aliases for every key; workers for keys of the scope admin."""
    assert "smollm2-135m-instruct" in run("models")
    assert "c4-train" in [one["alias"] for one in json.loads(run("datasets", "--json"))["items"]]
    assert json.loads(run("workers", "--json", code=10))["error"]["code"] == "scope_missing"
    with database.write() as session:
        (tmp_path / "key").write_text(create_key(session, "operator", scopes=(Scope.ADMIN,)))
        device = {"kind": "cpu", "name": "a processor", "memory_bytes": None}
        session.add(
            Worker(id="here:1:a", host="here", pid=1, version="0", devices=[device], memory_class="small")
        )
    (tmp_path / "key").chmod(0o600)
    options = ("workers", "--key-file", str(tmp_path / "key"))
    assert json.loads(run(*options, "--json"))["items"][0]["host"] == "here"
    assert "small" in run(*options)
