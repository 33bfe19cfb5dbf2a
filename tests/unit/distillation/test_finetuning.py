import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import kl_div

from ghosted_core.activations import ActivationFile
from ghosted_core.distillation import teaching, training
from ghosted_core.distillation.student import check_trainable
from ghosted_core.errors import DiskFullError, UnsupportedRepairError
from ghosted_core.model.surgery import repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.quality import Repair
from ghosted_core.recorder import Logged, MemoryRecorder, MetricMeasured, StageProgressed, StageStarted
from ghosted_core.stage_cache import FolderStageCache
from tests.distilling import finetuned, lively, operators, random_tokens, settings


def told(recorder: MemoryRecorder) -> list[str]:
    return [event.message for event in recorder.events if isinstance(event, Logged)]


def test_the_stage_tells_how_far_it_is_and_how_it_went(tmp_path: Path) -> None:
    """Progress ends at its total, in tokens; the metric and the report say what training bought."""
    recorder = MemoryRecorder()
    found = finetuned(lively("llama"), [2, 4], tmp_path, recorder=recorder)
    started = next(e for e in recorder.events if isinstance(e, StageStarted))
    done = [e.done for e in recorder.events if isinstance(e, StageProgressed)]
    assert (started.stage, started.unit) == ("finetune", "tokens")
    assert done == sorted(done)
    assert done[-1] == started.total
    metric = next(e for e in recorder.events if isinstance(e, MetricMeasured))
    report = found.report
    assert metric.value == report["held_out_kl"] < report["held_out_kl_before"] == metric.detail["before"]
    assert report["tokens"] == 6 * 24
    assert report["tokens_seen"] == 2 * 6 * 24
    assert report["parameters"] == 2 * 32 * 32
    assert [point["step"] for point in report["curve"]] == [0, 1, 2, 3, 4, 5, 6]
    assert list(tmp_path.iterdir()) == [], "what the teacher said is gone afterwards"


def test_early_end_is_told_and_progress_is_whole(tmp_path: Path) -> None:
    """Whoever waits sees the stage end at its total."""
    recorder = MemoryRecorder()
    wanted = settings(learning_rate=0.9, epochs=30, patience=1, evaluate_every=1)
    found = finetuned(lively("llama"), [2, 4], tmp_path, wanted, recorder=recorder)
    started = next(e for e in recorder.events if isinstance(e, StageStarted))
    done = [e.done for e in recorder.events if isinstance(e, StageProgressed)]
    assert found.report["stopped_early"]
    assert done[-1] == started.total
    assert any("Training ended after" in message for message in told(recorder))


def test_divergence_after_a_better_look_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on with what helped."""
    whole = training.Training.held_out_divergence
    looks = iter([*[None] * 3, math.nan])
    monkeypatch.setattr(training.Training, "held_out_divergence", lambda self: next(looks) or whole(self))
    recorder = MemoryRecorder()
    report = finetuned(lively("llama"), [2, 4], tmp_path, settings(epochs=8), recorder=recorder).report
    assert "is nan after 3 steps" in report["diverged"]
    assert (report["stopped_early"], report["best_step"]) == (True, 2)
    assert any("The best weights until then are kept" in message for message in told(recorder))


def test_operators_stay_float64_and_weights_take_the_models_dtype(tmp_path: Path) -> None:
    """As repairs have them; the names are those of the dense model."""
    model = lively("llama", dtype=torch.bfloat16)
    wanted = settings(trainable="operator+down_proj")
    repair = finetuned(model, [3, 4], tmp_path, wanted).repair
    assert {b: m.dtype for b, m in repair.corrections.items()} == {Boundary(3, 5): torch.float64}
    name = "model.layers.2.mlp.down_proj.weight"
    assert {n: t.dtype for n, t in repair.replaced.items()} == {name: torch.bfloat16}
    assert not torch.equal(repair.replaced[name], model.get_parameter(name))


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "gpt2", "qwen3_moe", "gpt_oss", "opt"])
def test_the_projection_alone_trains_where_nothing_repairs(model_type: str, tmp_path: Path) -> None:
    """In layers with experts it is that of all experts."""
    wanted = settings(trainable="down_proj", epochs=4, learning_rate=3e-3)
    found = finetuned(lively(model_type), [2, 3], tmp_path, wanted, repair=Repair({}, {}))
    assert found.repair.corrections == {}
    assert len(found.repair.replaced) == 1
    assert found.report["held_out_kl"] < found.report["held_out_kl_before"]


def test_a_repair_folded_before_the_cut_makes_the_states(tmp_path: Path) -> None:
    """Where the weights before the cut differ from the teacher's, states are the student's own.

    The divergence before the first step is that of the whole repaired model from the unpruned one.
    """
    model, plan = lively("llama"), PruningPlan.from_removed([3, 4], layer_count=6)
    name = "model.layers.0.mlp.down_proj.weight"
    folded = {name: 1.5 * model.get_parameter(name).detach()}
    repair = Repair(operators(model, plan).corrections, folded)
    # All tokens but one, which is then the one of the rest.
    wanted = settings(top_k=model.config.vocab_size - 1)
    found = finetuned(model, [3, 4], tmp_path, wanted, repair=repair).report["held_out_kl_before"]
    tokens = random_tokens(3, seed=3).tokens
    student = repaired_model(model, plan, repair.corrections, folded)
    theirs, ours = (one(input_ids=tokens).logits.log_softmax(-1) for one in (model, student))
    expected = kl_div(ours, theirs, log_target=True, reduction="sum") / tokens.numel()
    assert found == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("removed", [[0, 1], [4, 5], [0, 2, 5]])
def test_cuts_at_both_ends_train(removed: list[int], tmp_path: Path) -> None:
    """Before the first layer, and before the final norm."""
    model = lively("llama")
    repair = operators(model, PruningPlan.from_removed(removed, layer_count=6), scale=0.3)
    report = finetuned(model, removed, tmp_path, settings(epochs=3), repair=repair).report
    assert report["held_out_kl"] < report["held_out_kl_before"]


def test_no_projection_is_before_layer_0() -> None:
    """That is said before anything is computed."""
    plan = PruningPlan.from_removed([0, 3], layer_count=6)
    with pytest.raises(UnsupportedRepairError, match="no layer is before layer 0"):
        check_trainable(settings(trainable="down_proj"), lively("llama"), plan)
    check_trainable(settings(), lively("llama"), plan)


def test_a_full_disk_is_known_before_the_teacher_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what is needed and what is free."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DiskFullError, match="scratch space"):
        finetuned(lively("llama"), [2, 4], tmp_path)


def test_the_disk_holds_what_was_reckoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States, tokens and logarithms: as many bytes as the check before asked for."""
    sizes: dict[str, int] = {}
    take = ActivationFile.append

    def append(self: ActivationFile, rows: torch.Tensor) -> None:
        take(self, rows)
        sizes[str(self._path)] = self._path.stat().st_size

    monkeypatch.setattr(ActivationFile, "append", append)
    finetuned(lively("llama"), [2, 4], tmp_path)
    assert sum(sizes.values()) == (6 + 3) * 24 * (32 * 4 + 20 * 8 + 8)


def test_an_earlier_run_is_taken_over_whole(tmp_path: Path) -> None:
    """Same bits, and the user is told what was not computed."""
    cache, model = FolderStageCache(tmp_path / "stages"), lively("llama")
    first = finetuned(model, [2, 4], tmp_path, cache=cache)
    recorder = MemoryRecorder()
    second = finetuned(model, [2, 4], tmp_path, cache=cache, recorder=recorder)
    assert second.report == first.report
    for boundary, correction in first.repair.corrections.items():
        assert torch.equal(second.repair.corrections[boundary], correction)
    assert [m for m in told(recorder) if "earlier run" in m] == [
        "144 of 144 tokens of the teacher's answers were taken from an earlier run.",
        "72 of 72 tokens of the teacher's answers were taken from an earlier run.",
        "6 steps of the training were taken from an earlier run.",
    ]
    done = [e.done for e in recorder.events if isinstance(e, StageProgressed)]
    total = next(e.total for e in recorder.events if isinstance(e, StageStarted))
    assert (max(done), done[-1]) == (total, total)


@pytest.mark.parametrize("damage", ["torn", "foreign"])
def test_damaged_entries_are_ignored(tmp_path: Path, damage: str) -> None:
    """Torn files and those of another question are computed anew, with the same result."""
    cache, model = FolderStageCache(tmp_path / "stages"), lively("llama")
    first = finetuned(model, [2, 4], tmp_path, cache=cache)
    paths = sorted((tmp_path / "stages").iterdir(), key=lambda path: path.stat().st_size)
    assert len(paths) == 3
    contents = [path.read_bytes() for path in paths]
    for index, path in enumerate(paths):
        torn, foreign = contents[index][:-20], contents[index - 1]
        path.write_bytes(torn if damage == "torn" else foreign)
    recorder = MemoryRecorder()
    second = finetuned(model, [2, 4], tmp_path, cache=cache, recorder=recorder)
    assert second.report["curve"] == first.report["curve"]
    assert sum("damaged" in message for message in told(recorder)) == 3


def test_another_setting_is_another_training(tmp_path: Path) -> None:
    """The teacher's answers serve it, the steps do not; another text is all new."""
    cache, model = FolderStageCache(tmp_path / "stages"), lively("llama")
    finetuned(model, [2, 4], tmp_path, cache=cache)
    for changes, taken in (({"learning_rate": 1e-3}, 2), ({"top_k": 10}, 0), ({"temperature": 2.0}, 0)):
        recorder = MemoryRecorder()
        finetuned(model, [2, 4], tmp_path, settings(**changes), cache=cache, recorder=recorder)
        assert sum("earlier run" in message for message in told(recorder)) == taken


def test_text_beyond_the_bound_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage cache is no place for as much as a disk holds; the steps are kept all the same."""
    monkeypatch.setattr(teaching, "KEEP_BYTES", 1000)
    finetuned(lively("llama"), [2, 4], tmp_path, cache=FolderStageCache(tmp_path / "stages"))
    assert len(list((tmp_path / "stages").iterdir())) == 1


def test_parts_of_the_text_are_kept_as_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is an entry of its own, so that what is held in memory has a bound; the result is the same."""
    expected = finetuned(lively("llama"), [2, 4], tmp_path).report
    monkeypatch.setattr(teaching, "ENTRY_TOKENS", 48)
    cache = FolderStageCache(tmp_path / "stages")
    found = finetuned(lively("llama"), [2, 4], tmp_path, cache=cache).report
    assert found["curve"] == expected["curve"]
    assert len(list((tmp_path / "stages").iterdir())) == 3 + 2 + 1


def test_logits_exist_for_some_positions_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a part, the result is the same within rounding."""
    expected = finetuned(lively("llama"), [2, 4], tmp_path).report
    for module in (teaching, training):
        monkeypatch.setattr(module, "chunk_positions", lambda _vocabulary: 7)
    found = finetuned(lively("llama"), [2, 4], tmp_path).report
    assert found["held_out_kl"] == pytest.approx(expected["held_out_kl"], rel=1e-4)
