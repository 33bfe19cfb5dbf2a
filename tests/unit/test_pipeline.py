import json
import math
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.source import resolve
from ghosted_core.errors import InvalidSpecError, OutputExistsError, TooFewTokensError
from ghosted_core.evaluate import tasks
from ghosted_core.evaluate.task_protocol import Known
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.recorder import (
    LayersChosen,
    MemoryRecorder,
    MetricMeasured,
    NullRecorder,
    Stage,
    StageFinished,
    StageStarted,
)
from ghosted_core.spec import STRATEGIES, Explicit, JobSpec
from ghosted_core.texts import read_texts
from tests.jobs import tiny_spec


def run(spec: JobSpec, folder: Path) -> tuple[JobResult, MemoryRecorder]:
    memory = MemoryRecorder()
    return compress(spec, RunOptions(out=folder / "out", cache=folder / "cache"), memory), memory


def test_the_stages_run_in_order(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Each ends once, that of evaluation for texts and for continuations; each metric is measured once."""
    _, memory = run(tiny_spec(tiny_folder, text_file), tmp_path)
    stages = ["load", "score", "calibrate", "solve", "patch", "evaluate", "evaluate", "save"]
    assert [e.stage for e in memory.events if isinstance(e, StageFinished)] == stages
    measured = [e.name for e in memory.events if isinstance(e, MetricMeasured)]
    assert measured[:3] == ["perplexity_dense", "perplexity_pruned", "perplexity_repaired"]
    assert len(set(measured)) == len(measured)


def test_named_layers_need_no_scoring_and_no_repair_no_calibration(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Nothing is computed that nobody asked for."""
    spec = tiny_spec(tiny_folder, text_file, remove=[1], recovery="none", evaluation=None)
    _, memory = run(spec, tmp_path)
    assert [e.stage for e in memory.events if isinstance(e, StageFinished)] == ["load", "patch", "save"]


def test_which_layers_go_is_told_before_the_model_is_cut(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """As soon as it is decided, in the words in which the manifest has it afterwards."""
    spec = tiny_spec(tiny_folder, text_file, strategy="shortgpt", layers=1, recovery="none", evaluation=None)
    result, memory = run(spec, tmp_path)
    patching = memory.events.index(StageStarted(Stage.PATCH, 1, "steps"))
    (chosen,) = [e for e in memory.events[:patching] if isinstance(e, LayersChosen)]
    plan = result.manifest.plan
    assert (chosen.removed, chosen.layer_count) == (plan.removed, result.manifest.source.layer_count)
    assert chosen.scores == plan.scores


@pytest.mark.parametrize("form", [form for form in STRATEGIES if form is not Explicit])
def test_every_strategy_runs_to_the_end(
    tiny_folder: Path, text_file: Path, tmp_path: Path, form: type[Any]
) -> None:
    """And the manifest says what was removed and why: candidates, protection, ties."""
    settings = {"protect": False} if "protect" in form.model_fields else {}
    spec = tiny_spec(tiny_folder, text_file, strategy=form(**settings), layers="35%", evaluation=None)
    plan = run(spec, tmp_path)[0].manifest.plan
    assert len(plan.removed) == 2
    assert plan.scores["criterion"] == spec.strategy.name
    assert {"candidates", "protected", "ties", "best", "meaning"} <= plan.scores.keys()


@torch.no_grad()
def test_the_operator_is_the_least_squares_fit_of_stored_activations(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """The whole way from text to tensor equals torch.linalg.lstsq on hidden states kept in memory."""
    spec = tiny_spec(tiny_folder, text_file, remove=[2, 3], recovery={"name": "ghosted", "ridge": 0.0})
    path = run(spec, tmp_path)[0].path
    options: dict[str, Any] = {"catalog": builtin_catalog(), "cache": tmp_path, "log": print}
    source = resolve(spec.model, hub_token=None, **options)
    model = load_model(source, dtype="auto", device="cpu")
    texts = read_texts(spec, load_tokenizer(source), vocab_size=320, **options)
    states = model.model(texts.calibration.tokens, output_hidden_states=True).hidden_states
    entering, leaving = (states[index].flatten(0, 1).double() for index in (2, 4))
    expected = torch.linalg.lstsq(entering, leaving - entering).solution
    found = load_file(path / "model.safetensors")["model.layers.2.ghosted_operator.correction"]
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


def test_the_same_spec_gives_the_same_bits(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Twice the same job: same layers, bit-identical weights, same manifest."""
    spec = tiny_spec(tiny_folder, text_file)
    one, two = (run(spec, tmp_path / name)[0] for name in ("one", "two"))
    assert one.manifest == two.manifest
    weights = [load_file(result.path / "model.safetensors") for result in (one, two)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_calibration_and_evaluation_share_no_document(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Documents of one file are split; no window of one part holds text of the other."""
    evaluation = {"windows": 12, "sequence_length": 200}
    spec = tiny_spec(tiny_folder, text_file, evaluation=evaluation)
    options: dict[str, Any] = {"catalog": builtin_catalog(), "cache": tmp_path, "log": print}
    tokenizer = load_tokenizer(resolve(spec.model, hub_token=None, **options))
    texts = read_texts(spec, tokenizer, vocab_size=320, **options)
    assert texts.evaluation is not None
    numbers = []
    for windows in (texts.calibration, texts.evaluation):
        text = tokenizer.decode(windows.tokens.flatten().tolist())
        numbers.append(set(re.findall(r"\n\n(\d+)\. ", text)))
    assert numbers[0]
    assert numbers[1]
    assert not numbers[0] & numbers[1]


def test_the_manifest_tells_all(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Spec, plan, fit, data, cost and files are there, as valid JSON."""
    result, _ = run(tiny_spec(tiny_folder, text_file, remove=[0, 3]), tmp_path)
    manifest = json.loads((result.path / "ghosted.json").read_text(), parse_constant=pytest.fail)
    assert manifest["spec_digest"] == tiny_spec(tiny_folder, text_file, remove=[0, 3]).digest()
    assert manifest["plan"]["boundaries"] == [[0, 1], [3, 4]]
    assert [fit["tokens"] for fit in manifest["fits"]] == [8 * 64] * 2
    assert [fit["held_out_tokens"] for fit in manifest["fits"]] == [2 * 64] * 2
    assert manifest["calibration"]["windows"] == 8
    assert math.isfinite(manifest["metrics"]["perplexity_repaired"])
    written = {f.relative_to(result.path).as_posix() for f in result.path.rglob("*") if f.is_file()}
    assert set(manifest["files"]) == written - {"ghosted.json"}


def test_no_text_and_no_path_of_the_user_is_in_the_artifact(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Calibration text stays where it is; folders of this machine are nobody's business."""
    path = run(tiny_spec(tiny_folder, text_file), tmp_path)[0].path
    for file in path.iterdir():
        content = file.read_bytes()
        assert b"remembers seven letters" not in content
        for folder in (tmp_path, tiny_folder.parent, text_file.parent):
            assert str(folder).encode() not in content


@pytest.mark.parametrize("weighting", ["uniform", "skip_first", "inverse_norm"])
def test_each_weighting_is_named_in_the_report(
    tiny_folder: Path, text_file: Path, tmp_path: Path, weighting: str
) -> None:
    """And the first token counts or not, as it says."""
    spec = tiny_spec(tiny_folder, text_file, remove=[2], recovery={"name": "ghosted", "weighting": weighting})
    fit = run(spec, tmp_path)[0].manifest.fits[0]
    assert fit["weighting"] == weighting
    assert fit["tokens"] == 8 * (63 if weighting == "skip_first" else 64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_runs_and_is_saved_in_the_asked_dtype(
    tiny_folder: Path, text_file: Path, tmp_path: Path, dtype: str
) -> None:
    """Operators are rounded to the model's dtype."""
    result, _ = run(tiny_spec(tiny_folder, text_file, remove=[2], dtype=dtype), tmp_path)
    tensors = load_file(result.path / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {f"torch.{dtype}"}
    assert result.manifest.dtype == dtype


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"remove": [6]}, InvalidSpecError, "layers 0 to 5"),
        ({"layers": 6}, InvalidSpecError, "only 6 layers"),
        ({"strategy": "taylor", "layers": 1}, InvalidSpecError, "protects the first 4"),
        ({"strategy": "sleb", "layers": 5}, InvalidSpecError, "the 4 layers from 1 to 4"),
        ({"calibration": {"sequence_length": 512}}, InvalidSpecError, "at most 256"),
        ({"calibration": {"sequences": 4096, "sequence_length": 64}}, TooFewTokensError, "need"),
    ],
)
def test_impossible_jobs_end_early_and_leave_nothing(
    tiny_folder: Path, text_file: Path, tmp_path: Path, changes: dict[str, Any], error: type, said: str
) -> None:
    """The message has the numbers; no folder appears."""
    if "calibration" in changes:
        dataset = {"kind": "local", "path": str(text_file)}
        changes = {**changes, "calibration": {"dataset": dataset, **changes["calibration"]}}
    with pytest.raises(error, match=said):
        run(tiny_spec(tiny_folder, text_file, **changes), tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_taken_folder_is_refused_before_the_model_is_looked_for(text_file: Path, tmp_path: Path) -> None:
    """The cheapest check comes first."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(OutputExistsError):
        compress(
            tiny_spec(tmp_path / "no-such-model", text_file),
            RunOptions(out=tmp_path / "out", cache=tmp_path),
            NullRecorder(),
        )


def test_a_bound_on_what_no_task_has_is_refused_before_the_model_is_looked_for(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the harness has said which metrics there are."""
    monkeypatch.setattr(tasks, "_started", lambda *_: nullcontext([Known(task="boolq", metrics=("acc",))]))
    evaluation = {"tasks": ["boolq"], "gate": [{"metric": "acc_norm_boolq", "max": 1}]}
    spec = tiny_spec(tmp_path / "nowhere", text_file, evaluation=evaluation)
    options = RunOptions(out=tmp_path / "out", cache=tmp_path / "cache", task_data=tmp_path)
    with pytest.raises(InvalidSpecError, match="'acc_norm_boolq', which no task has") as refused:
        compress(spec, options, NullRecorder())
    assert "acc_boolq" in refused.value.hint
