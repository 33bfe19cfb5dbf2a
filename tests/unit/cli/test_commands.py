import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ghosted_cli.exits import REFUSED, USAGE
from ghosted_cli.main import app


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def compress_arguments(model: Path, text: Path, out: Path) -> list[str]:
    fixed = "--layers 2 --sequences 4 --sequence-length 64 --held-out 1 --windows 2 --json"
    return ["compress", str(model), "--out", str(out), "--calibration", str(text), *fixed.split()]


def test_compress_makes_a_sound_checkpoint(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """One JSON document with path, manifest and stages; `verify` loads the folder and continues a text."""
    result = invoke(*compress_arguments(tiny_folder, text_file, tmp_path / "out"))
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["path"] == str(tmp_path / "out")
    assert len(document["manifest"]["plan"]["removed"]) == 2
    assert document["stages"][0]["stage"] == "load"
    verified = invoke("verify", tmp_path / "out", "--prompt", "The fox", "--new-tokens", 3, "--json")
    assert verified.exit_code == 0
    assert list(json.loads(verified.stdout)["continuations"]) == ["The fox"]


def test_named_layers_and_no_evaluation(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """--remove takes the place of --layers."""
    arguments = compress_arguments(tiny_folder, text_file, tmp_path / "out")
    arguments[arguments.index("--layers") : arguments.index("--layers") + 2] = ["--remove", "0,2-3"]
    document = json.loads(invoke(*arguments, "--no-evaluation").stdout)
    assert document["manifest"]["plan"]["removed"] == [0, 2, 3]
    assert document["manifest"]["metrics"] == {}


def test_a_repair_and_its_settings_are_options(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """--recovery takes any repair; --fit and --ridge auto reach it; what it lacks is refused."""
    arguments = [*compress_arguments(tiny_folder, text_file, tmp_path / "one"), "--no-evaluation"]
    chosen = ["--fit", "sequential", "--ridge", "auto", "--solver", "cholesky"]
    recovery = json.loads(invoke(*arguments, *chosen).stdout)["manifest"]["spec"]["recovery"]
    assert (recovery["fit"], recovery["ridge"], recovery["solver"]) == ("sequential", "auto", "cholesky")
    arguments[arguments.index("--out") + 1] = str(tmp_path / "two")
    manifest = json.loads(invoke(*arguments, "--recovery", "prune_and_comp").stdout)["manifest"]
    assert manifest["operators"] == []
    assert manifest["fits"][0]["detail"]["factor"] > 0
    refused = json.loads(invoke(*arguments, "--recovery", "prune_and_comp", "--ridge", "1").stdout)
    assert refused["error"]["code"] == "invalid_spec"


def test_a_person_gets_a_table(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Dense, pruned and repaired side by side; progress does not mix with it."""
    arguments = [a for a in compress_arguments(tiny_folder, text_file, tmp_path / "out") if a != "--json"]
    result = invoke(*arguments)
    assert result.exit_code == 0
    for word in ("dense", "pruned", "repaired", "perplexity", "parameters", "peak memory", "residual"):
        assert word in result.stdout
    assert "score: started" in result.stderr
    assert "score: started" not in result.stdout


def test_inspect_knows_models_and_checkpoints(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Sizes of a source come without reading weights; of our own folder, the manifest."""
    document = json.loads(invoke("inspect", tiny_folder, "--json").stdout)
    assert document["layer_count"] == 6
    assert document["parameters"] == sum(document["layer_parameters"]) + 320 * 32 + 32
    invoke(*compress_arguments(tiny_folder, text_file, tmp_path / "out"))
    assert json.loads(invoke("inspect", tmp_path / "out", "--json").stdout)["source"]["layer_count"] == 6
    assert "removed" in invoke("inspect", tmp_path / "out").stdout


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (["--layers", "99"], "invalid_spec"),
        (["--strategy", "astrology"], "invalid_spec"),
        (["--strategy", "taylor:protect"], "invalid_spec"),
        (["--strategy", "sleb", "--layers", "5"], "invalid_spec"),
        (["--layers", "100%"], "invalid_spec"),
        (["--recovery", "prayer"], "invalid_spec"),
        (["--device", "cuda:7"], "invalid_spec"),
        (["--calibration", "no-such-file.txt"], "data_not_found"),
        (["--sequences", "100000"], "invalid_spec"),
    ],
)
def test_bad_input_is_said_and_leaves_nothing(
    tiny_folder: Path, text_file: Path, tmp_path: Path, change: list[str], code: str
) -> None:
    """Exit code 10, a stable code, a message and what to try."""
    result = invoke(*compress_arguments(tiny_folder, text_file, tmp_path / "out"), *change)
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == REFUSED
    assert error["code"] == code
    assert error["message"]
    assert error["advice"]
    assert not (tmp_path / "out").exists()


def test_unknown_options_are_a_usage_error() -> None:
    """Exit code 2, as everywhere."""
    assert invoke("compress", "--frobnicate").exit_code == USAGE


def test_a_missing_model_names_the_path(text_file: Path, tmp_path: Path) -> None:
    """Without --json the message is on stderr."""
    arguments = compress_arguments(tmp_path / "gone", text_file, tmp_path / "out")
    result = invoke(*[a for a in arguments if a != "--json"])
    assert result.exit_code == REFUSED
    assert "gone" in result.stderr
    assert "model_not_found" in result.stderr
