import json
import math
from pathlib import Path
from typing import Any

import pytest

from ghosted_core.checkpoint.patched import verify_checkpoint
from ghosted_core.errors import NonFiniteError, QualityGateError
from ghosted_core.evaluate.suite import damage_ratio
from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.recorder import MemoryRecorder, MetricMeasured
from ghosted_core.testing import tiny_llama
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model, write_text

STRICT = [{"metric": "perplexity", "max_ratio": 0.5}]


def run(model: Path, text: Path, folder: Path, **evaluation: Any) -> tuple[JobResult, MemoryRecorder]:
    memory = MemoryRecorder()
    wanted = {"windows": 3, "prompts": ["The fox"], "new_tokens": 4, **evaluation}
    spec = tiny_spec(model, text, remove=[2, 3], evaluation=wanted)
    return compress(spec, RunOptions(out=folder / "out", cache=folder / "cache"), memory), memory


def test_a_missed_gate_leaves_nothing(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """But the numbers."""
    with pytest.raises(QualityGateError, match=r"max_ratio is 0\.5, found"):
        run(tiny_folder, text_file, tmp_path, gate=STRICT)
    assert not list(tmp_path.glob("*out*"))


def test_a_missed_gate_may_keep_the_checkpoint(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """The job fails all the same; manifest, report and card of what is kept say so."""
    with pytest.raises(QualityGateError):
        run(tiny_folder, text_file, tmp_path, gate=STRICT, on_miss="keep")
    manifest = json.loads((tmp_path / "out" / "ghosted.json").read_text())
    assert manifest["gate"]["passed"] is False
    assert manifest["gate"]["checks"][0]["allowed"] == 0.5
    assert "missed its quality gate: perplexity" in (tmp_path / "out" / "README.md").read_text()
    assert "missed its quality gate: perplexity" in (tmp_path / "out" / "report.html").read_text()


def test_a_kept_gate_is_in_the_manifest(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """With what was allowed and what was found."""
    gate = [{"metric": "perplexity", "max_ratio": 100}, {"metric": "next_token_agreement", "min": 0.0}]
    manifest = run(tiny_folder, text_file, tmp_path, gate=gate)[0].manifest
    assert manifest.gate is not None
    assert manifest.gate["passed"] is True
    assert [check["metric"] for check in manifest.gate["checks"]] == ["perplexity", "next_token_agreement"]


def test_a_model_without_a_finite_perplexity_never_passes(text_file: Path, tmp_path: Path) -> None:
    """Nobody bounded it, and yet a checkpoint that says nothing but noise is no success."""
    model = tiny_llama()
    model.lm_head.weight.mul_(1e6)
    folder = save_tiny_model(model, tmp_path / "broken")
    with pytest.raises(QualityGateError, match="perplexity_dense is not a finite number"):
        run(folder, text_file, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_kept_checkpoint_without_finite_metrics_can_be_verified(text_file: Path, tmp_path: Path) -> None:
    """Its gate says what is no number; it loads and answers as it did."""
    model = tiny_llama()
    model.lm_head.weight.mul_(1e6)
    folder = save_tiny_model(model, tmp_path / "broken")
    with pytest.raises(QualityGateError, match="is not a finite number"):
        run(folder, text_file, tmp_path, on_miss="keep")
    assert verify_checkpoint(tmp_path / "out").manifest.metrics["perplexity_dense"] is None


def test_a_result_that_answers_with_no_numbers_is_none(text_file: Path, tmp_path: Path) -> None:
    """Also where nothing was measured that would show it."""
    model = tiny_llama()
    model.lm_head.weight.fill_(3e38)
    folder = save_tiny_model(model, tmp_path / "broken")
    with pytest.raises(NonFiniteError, match="logits"):
        run(folder, text_file, tmp_path, windows=0, prompts=[])
    assert not (tmp_path / "out").exists()


def test_corpora_are_measured_on_all_models(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """In one run; the manifest says for each how its text became windows."""
    rows = tmp_path / "wiki.jsonl"
    texts = write_text(tmp_path / "wiki.txt", seed=3).read_text().split("\n\n")
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    corpora = [
        {"name": "wikitext2", "dataset": {"kind": "local", "path": str(rows)}, "windows": "all"},
        {"name": "mine", "dataset": {"kind": "local", "path": str(text_file)}, "sequence_length": 32},
    ]
    result, memory = run(tiny_folder, text_file, tmp_path, corpora=corpora)
    measured = {event.name for event in memory.events if isinstance(event, MetricMeasured)}
    for name in ("wikitext2", "mine"):
        assert {f"perplexity_{name}_{v}" for v in ("dense", "pruned", "repaired")} <= measured
    manifest = result.manifest
    assert manifest.corpora["wikitext2"]["windows"] == len("\n\n".join(texts).encode()) // 64
    assert (manifest.corpora["mine"]["windows"], manifest.corpora["mine"]["length"]) == (3, 32)
    assert manifest.details["perplexity_mine_dense"]["standard_error_nll"] > 0


def test_likeness_is_measured_on_a_corpus_where_there_is_no_other_text(
    tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Without windows of its own the evaluation has the first corpus; there is no damage ratio then."""
    corpora = [{"name": "mine", "dataset": {"kind": "local", "path": str(text_file)}, "windows": 2}]
    manifest = run(tiny_folder, text_file, tmp_path, windows=0, corpora=corpora)[0].manifest
    assert manifest.details["kl_repaired"]["corpus"] == "mine"
    assert "perplexity_dense" not in manifest.metrics
    assert "damage_ratio" not in manifest.metrics


def test_generation_is_measured_on_every_model(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Texts and how much they repeat, through the model's own template unless that is not wanted."""
    manifest = run(tiny_folder, text_file, tmp_path)[0].manifest
    assert set(manifest.generations) == {"dense", "pruned", "repaired"}
    read = manifest.details["distinct_1_repaired"]
    assert read["chat_template"] is True
    plain = run(tiny_folder, text_file, tmp_path / "two", template="none")[0].manifest
    assert plain.details["distinct_1_repaired"]["chat_template"] is False
    assert plain.details["distinct_1_repaired"]["read"] != read["read"], "what was read is known by its hash"


@pytest.mark.parametrize("pruned", [3.0, 2.99])
def test_where_pruning_does_no_damage_there_is_none_to_heal(pruned: float) -> None:
    """A ratio would turn its sign there, and a wrecked repair would pass any bound."""
    assert math.isnan(damage_ratio({"dense": 3.0, "pruned": pruned, "repaired": 5.0}))
    assert damage_ratio({"dense": 3.0, "pruned": pruned, "repaired": 2.9}) == 0.0, "and none was done"
    assert damage_ratio({"dense": 3.0, "pruned": 4.0, "repaired": 3.5}) == 0.5
