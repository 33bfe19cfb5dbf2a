import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ghosted_cli.compare import finite
from ghosted_cli.exits import REFUSED
from ghosted_cli.main import app
from ghosted_cli.render import ranges
from ghosted_core.comparison import paired_difference
from ghosted_core.testing import tiny_llama
from tests.tiny import save_tiny_model
from tests.tokenizers_made_here import byte_tokenizer

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
TEXT = ("--sequences", "4", "--sequence-length", "64")


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def document(*arguments: Any) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def deep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Deep enough for criteria that protect six layers."""
    return save_tiny_model(tiny_llama(10), tmp_path_factory.mktemp("deep") / "deep")


@pytest.fixture(scope="module")
def made(tiny_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the tiny model, evaluated on two windows."""
    out = tmp_path_factory.mktemp("made") / "out"
    fixed = ("--layers", 2, "--held-out", 1, "--windows", 2)
    document("compress", tiny_folder, "--out", out, "--calibration", text_file, *TEXT, *fixed)
    return out


def test_one_pass_says_what_every_plan_says(deep_folder: Path, text_file: Path) -> None:
    """For each criterion `inspect --scores` names the layers and scores that its own plan finds."""
    found = document("inspect", deep_folder, "--scores", "--calibration", text_file, *TEXT)
    assert (found["layers"], found["layer_count"], found["tokens"]) == (3, 10, 256)
    assert len(found["scores"]) == 7
    for scores in found["scores"]:
        name = scores["criterion"]
        plan = document(
            "plan", deep_folder, "--layers", 3, "--strategy", name, "--calibration", text_file, *TEXT
        )
        assert plan["removed"] == scores["removed"]
        assert plan["scores"]["candidates"] == scores["candidates"]


def test_a_criterion_that_cannot_says_so(tiny_folder: Path, text_file: Path) -> None:
    """The others are shown all the same, to people too."""
    found = document("inspect", tiny_folder, "--scores", "--calibration", text_file, *TEXT)
    assert list(found["refused"]) == ["magnitude"]
    shown = invoke("inspect", tiny_folder, "--scores", "--calibration", text_file, *TEXT)
    assert "protects the first 4" in shown.stdout
    assert "streamline_channel" in shown.stdout
    assert "score: started" in shown.stderr


def test_the_heat_map_is_a_whole_png(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """The file is a PNG, an older one is replaced, and nothing else is left beside it."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "map.png"
    picture.write_text("old")
    arguments = ("--scores", "--calibration", text_file, *TEXT, "--heat-map", picture)
    found = document("inspect", tiny_folder, *arguments)
    cosines = torch.tensor(found["cosines"], dtype=torch.float64)
    assert picture.read_bytes().startswith(PNG_SIGNATURE)
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"]
    assert cosines.shape == (7, 7)
    torch.testing.assert_close(cosines.diagonal(), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-6)


def test_a_heat_map_without_matplotlib_is_refused_before_the_work(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names what to install, and no text is read."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ("--scores", "--calibration", text_file, *TEXT, "--heat-map", tmp_path / "map.png")
    result = invoke("inspect", tiny_folder, *arguments)
    assert result.exit_code == REFUSED
    assert "ghosted[plot]" in result.stderr
    assert "load: started" not in result.stderr


@pytest.mark.parametrize("name", ["map.jpg", ""])
def test_a_heat_map_that_cannot_be_is_refused(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    """Another format, or a folder."""
    pytest.importorskip("matplotlib")
    result = invoke("inspect", tiny_folder, "--scores", "--heat-map", tmp_path / name)
    assert result.exit_code == REFUSED
    assert not any(tmp_path.iterdir())


def test_options_of_scores_alone_are_refused(tiny_folder: Path) -> None:
    """Rather than ignored."""
    result = invoke("inspect", tiny_folder, "--sequences", 4)
    assert result.exit_code == REFUSED
    assert "--scores" in result.stderr


def test_a_checkpoint_has_no_scores_of_its_own(made: Path) -> None:
    """They are those of its source."""
    assert invoke("inspect", made, "--scores").exit_code == REFUSED


def test_a_plan_foretells_the_job(made: Path, tiny_folder: Path, text_file: Path) -> None:
    """Layers, scores and size are those of the checkpoint."""
    manifest = json.loads((made / "ghosted.json").read_bytes())
    plan = document("plan", tiny_folder, "--layers", 2, "--calibration", text_file, *TEXT)
    assert plan["removed"] == manifest["plan"]["removed"]
    assert plan["scores"] == manifest["plan"]["scores"]
    assert plan["estimate"]["parameters_after"] == manifest["parameters"]


def test_a_plan_writes_nothing(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where it is started nor beside the model or in the cache."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tiny_folder.parent.rglob("*"))
    cache = tmp_path / "cache"
    result = invoke(
        "plan", tiny_folder, "--layers", "25%", "--calibration", text_file, *TEXT, "--cache", cache
    )
    assert result.exit_code == 0
    for word in ("Would remove", "parameters", "statistics", "checkpoint", "Never removed"):
        assert word in result.stdout
    assert sorted(tiny_folder.parent.rglob("*")) == before
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("strategy", "loads"), [("magnitude", True), ("reverse", False)])
def test_criteria_without_text_read_none(deep_folder: Path, strategy: str, *, loads: bool) -> None:
    """The text may be missing; weights are read only by who looks at them."""
    result = invoke(
        "plan", deep_folder, "--layers", 2, "--strategy", strategy, "--calibration", "gone.txt", *TEXT
    )
    assert result.exit_code == 0
    assert ("load: started" in result.stderr) is loads


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("--layers", 9), "invalid_spec"),
        (("--remove", "0", "--recovery", "replace_me"), "unsupported_repair"),
        (("--layers", 2, "--sequence-length", 4096), "invalid_spec"),
    ],
)
def test_a_plan_refuses_what_the_job_would(
    tiny_folder: Path, text_file: Path, change: tuple[Any, ...], code: str
) -> None:
    """With the same codes."""
    result = invoke("plan", tiny_folder, "--calibration", text_file, *TEXT, *change, "--json")
    assert result.exit_code == REFUSED
    assert json.loads(result.stdout)["error"]["code"] == code


def compared(a: Path, b: Path, text: Path, *more: Any) -> Any:
    fixed = ("--windows", 2, "--sequence-length", 64, "--prompt-tokens", 8, "--new-tokens", 2, "--rounds", 2)
    return invoke("compare", a, b, "--evaluation", text, *fixed, *more)


def test_comparing_finds_what_the_job_measured(made: Path, tiny_folder: Path, text_file: Path) -> None:
    """Perplexities and sizes of source and checkpoint are those of the manifest."""
    result = compared(tiny_folder, made, text_file, "--json")
    for side in ("a", "b"):
        peak = json.loads(result.stdout)[side]["peak_memory"]
        assert peak["bytes"] > peak["without_model_bytes"] > 0
    found, manifest = json.loads(result.stdout), json.loads((made / "ghosted.json").read_bytes())
    for side, variant in (("a", "dense"), ("b", "repaired")):
        measured = found[side]["perplexity"]
        assert measured["nll"] == pytest.approx(manifest["metrics"][f"nll_{variant}"], rel=1e-6)
        assert measured["standard_error"] == pytest.approx(
            manifest["metrics"][f"nll_standard_error_{variant}"], rel=1e-4
        )
    assert found["text"] == manifest["evaluation"]
    assert (found["a"]["parameters"], found["b"]["parameters"]) == (
        manifest["source"]["parameters"],
        manifest["parameters"],
    )
    assert found["a"]["bytes_on_disk"] == (tiny_folder / "model.safetensors").stat().st_size
    assert found["b"]["bytes_on_disk"] == (made / "model.safetensors").stat().st_size


def test_a_model_is_like_itself(tiny_folder: Path, text_file: Path) -> None:
    """No difference, and people see a table."""
    shown = compared(tiny_folder, tiny_folder, text_file, "--no-memory")
    for word in ("perplexity", "decode tokens/s", "+0.0000 +- 0.0000", "1.000"):
        assert word in shown.stdout


def test_other_tokenizers_are_refused(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Perplexities over other tokens say nothing of each other."""
    other = save_tiny_model(tiny_llama(2), tmp_path / "other")
    byte_tokenizer(bos=True).save_pretrained(other)
    result = compared(tiny_folder, other, text_file, "--json")
    assert result.exit_code == REFUSED
    assert "tokenizers" in json.loads(result.stdout)["error"]["message"]


def test_paired_differences_have_the_error_of_their_mean() -> None:
    """Mean and standard error of 1 and 3: 2 +- 1; of one window the error is not known."""
    two = paired_difference((1.0, 2.0), (2.0, 5.0))
    assert (two.value, two.standard_error) == pytest.approx((2.0, 1.0))
    assert finite(asdict(paired_difference((1.0,), (2.0,)))) == {"value": 1.0, "standard_error": None}


def test_ranges_are_read_as_written() -> None:
    """Neighbours are joined, whatever the order."""
    assert ranges([7, 3, 5, 6]) == "3, 5-7"
    assert ranges([]) == ""
