import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ghosted_cli import working
from ghosted_cli.exits import REFUSED
from ghosted_cli.main import app
from ghosted_cli.measuring import corpus_choices, gate_choices, task_choices
from ghosted_core import evaluation
from ghosted_core.catalog import Catalog, TextEntry
from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate import tasks
from ghosted_core.spec import DEFAULT_TEXT, LocalText

SHORT = ("--windows", "2", "--sequence-length", "64", "--new-tokens", "3", "--device", "cpu")
JOB = ("--layers", "2", "--sequences", "4", "--sequence-length", "64", "--held-out", "1", "--windows", "2")


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def compress(model: Path, text: Path, out: Path, *more: str) -> Any:
    return invoke("compress", model, "--out", out, "--calibration", text, *JOB, "--json", *more)


def test_a_checkpoint_has_the_figures_of_its_manifest(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Measured again from its files, on the text that calibration never saw."""
    manifest = json.loads(compress(tiny_folder, text_file, tmp_path / "out").stdout)["manifest"]
    found = json.loads(invoke("evaluate", tmp_path / "out", "--text", text_file, *SHORT, "--json").stdout)
    perplexity = found["metrics"]["perplexity"]
    assert perplexity["part"] == "evaluation"
    assert perplexity["value"] == pytest.approx(manifest["metrics"]["perplexity_repaired"], rel=1e-4)


def test_the_usual_text_is_the_same_for_every_model(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What jobs calibrate on by default is divided, so that a model compares with what was made of it."""
    rows = tmp_path / "rows.jsonl"
    documents = text_file.read_text().split("\n\n")
    rows.write_text("\n".join(json.dumps({"text": document}) for document in documents))
    catalog = Catalog({}, {DEFAULT_TEXT: TextEntry(LocalText(path=str(rows)), "text")})
    monkeypatch.setattr(working, "local_catalog", lambda: catalog)
    result = invoke("evaluate", tiny_folder, *SHORT, "--json")
    assert json.loads(result.stdout)["metrics"]["perplexity"]["part"] == "evaluation"
    monkeypatch.setenv("COLUMNS", "200")
    assert f"{DEFAULT_TEXT}, evaluation documents" in invoke("evaluate", tiny_folder, *SHORT).stdout


def test_a_text_that_the_checkpoint_learned_from_is_told_of(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """As text of its own and as a corpus: both look better than they are, or are measured on less."""
    compress(tiny_folder, text_file, tmp_path / "out")
    texts = ("--text", text_file, "--corpus", f"mine={text_file}")
    told = " ".join(invoke("evaluate", tmp_path / "out", *texts, *SHORT).stderr.split())
    assert "measured on the evaluation documents alone" in told
    assert "learned from the text of 'mine'" in told
    assert "learned" not in invoke("evaluate", tiny_folder, *texts, *SHORT).stderr


def test_a_harness_that_crashes_costs_its_own_figures_alone(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else was found is told; the exit code says that something is missing."""
    monkeypatch.setattr(evaluation, "check_tasks", lambda *_: None)
    monkeypatch.setattr(tasks, "MODULE", "no_such_module")
    asked = ("--text", text_file, "--tasks", "boolq", "--task-data", tmp_path)
    result = invoke("evaluate", tiny_folder, *asked, *SHORT, "--json")
    assert result.exit_code == REFUSED
    found = json.loads(result.stdout)
    assert found["tasks_complete"] is False
    assert "perplexity" in found["metrics"]


def test_a_model_by_itself_has_no_variants(tiny_folder: Path, text_file: Path) -> None:
    """Metrics are named after the corpus alone."""
    result = invoke("evaluate", tiny_folder, "--corpus", f"mine={text_file}", *SHORT, "--json")
    metrics = json.loads(result.stdout)["metrics"]
    assert set(metrics) == {"perplexity_mine", "distinct_1", "distinct_2", "distinct_3", "longest_repeat"}


def test_what_was_found_is_a_table(tiny_folder: Path, text_file: Path) -> None:
    """With standard errors, and the continuations below."""
    result = invoke("evaluate", tiny_folder, "--text", text_file, "--prompt", "The fox", *SHORT)
    assert result.exit_code == 0
    for said in ("perplexity", "standard error", "2 windows of 64", "'The fox' ->"):
        assert said in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--corpus", "ptb"), "invalid_spec"),
        (("--corpus", "mine=/nowhere.txt"), "data_not_found"),
        (("--tasks", "boolq"), "task_data"),
        (("--sequence-length", "4096"), "invalid_spec"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny_folder: Path, options: tuple[str, ...], code: str) -> None:
    """With its code, and quickly."""
    result = invoke("evaluate", tiny_folder, *SHORT, *options, "--json")
    assert result.exit_code == REFUSED
    assert json.loads(result.stdout)["error"]["code"] == code


def test_compress_takes_corpora_and_a_gate(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """A miss ends the command with the numbers, and the checkpoint stays if that was asked for."""
    options = (
        "--corpus",
        f"mine={text_file}",
        "--gate",
        "perplexity_mine:max_ratio=0.5",
        "--on-miss",
        "keep",
    )
    result = compress(tiny_folder, text_file, tmp_path / "out", *options)
    assert result.exit_code == REFUSED
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "quality_gate"
    assert "perplexity_mine" in error["message"]
    assert json.loads((tmp_path / "out" / "ghosted.json").read_text())["gate"]["passed"] is False


def test_options_are_read_as_parts_of_a_spec() -> None:
    """Names, files, examples, limits and bounds."""
    assert corpus_choices(["c4", "ptb=/data/ptb.txt", "mine=boolq-passages"]) == [
        {"name": "c4"},
        {"name": "ptb", "dataset": {"kind": "local", "path": "/data/ptb.txt"}},
        {"name": "mine", "dataset": "boolq-passages"},
    ]
    assert task_choices(["boolq,arc_easy:5", "copa"], 100) == [
        {"name": "boolq", "limit": 100},
        {"name": "arc_easy", "shots": 5, "limit": 100},
        {"name": "copa", "limit": 100},
    ]
    assert gate_choices(["acc_boolq:max_drop=0.05,min=0.5"]) == [
        {"metric": "acc_boolq", "max_drop": 0.05, "min": 0.5}
    ]
    with pytest.raises(InvalidSpecError):
        gate_choices(["perplexity"])
