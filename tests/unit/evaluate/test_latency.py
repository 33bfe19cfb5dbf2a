import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.source import resolve
from ghosted_core.evaluate import latency as module
from ghosted_core.evaluate.latency import measure_latency, prompt_for, weight_bytes
from ghosted_core.evaluate.memory import MODULE, Peak, PeakRequest, peak_of
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.meter import ProcessMeter
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import Logged, MemoryRecorder
from ghosted_core.spec import LATENCY_METRICS, Evaluation, Latency, LocalModel
from ghosted_core.testing import tiny_llama
from tests.asked import check_ends_with_whoever_asked
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

METER = ProcessMeter(torch.device("cpu"))
SHORT = Latency(prompt_tokens=6, new_tokens=2, rounds=2)


def test_it_is_off_and_then_leaves_no_trace_in_a_spec() -> None:
    """A spec without it reads and digests as before there was such a thing; true asks for the defaults."""
    assert "latency" not in Evaluation().model_dump(mode="json")
    assert Evaluation.model_validate({"latency": True}).latency == Latency()
    assert Evaluation.model_validate({"latency": False}).latency is None


def test_only_what_is_measured_can_be_bounded() -> None:
    """Like any metric."""
    bound = [{"metric": "decode_tokens_per_second", "min_ratio": 1.0}]
    assert Evaluation.model_validate({"latency": True, "gate": bound}).gate
    with pytest.raises(ValueError, match="does not measure"):
        Evaluation.model_validate({"gate": bound})


def test_the_prompt_is_as_long_as_the_model_reads() -> None:
    """The beginning of the text; where that is too short, of the vocabulary; none if there is no room."""
    model = tiny_llama()
    text = torch.arange(100, 140).view(4, 10)
    assert prompt_for(SHORT, model, text).tolist() == [list(range(100, 106))]  # type: ignore[union-attr]
    assert prompt_for(SHORT, model, text[:1, :2]).tolist() == [list(range(6))]  # type: ignore[union-attr]
    limit = model.config.max_position_embeddings
    long = Latency(prompt_tokens=10 * limit, new_tokens=3)
    assert prompt_for(long, model, None).shape == (1, limit - 3)  # type: ignore[union-attr]
    assert prompt_for(Latency(new_tokens=4096), model, None) is None


def test_a_model_that_cannot_be_timed_fails_nothing() -> None:
    """It is logged; there are no figures."""
    model, memory = tiny_llama(), MemoryRecorder()
    broken = tiny_llama()
    broken.model.layers[0].register_forward_pre_hook(_raise)
    assert measure_latency(SHORT, {"dense": model, "pruned": broken}, None, memory, METER) == ()
    said = [event.message for event in memory.events if isinstance(event, Logged)]
    assert said == ["Latency was not measured (RuntimeError)."]


def _raise(*_: Any) -> None:
    raise RuntimeError


def test_a_job_times_and_weighs_all_its_models(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every figure of every model is a metric, says on what it was found, and stands in report and card."""
    asked: list[PeakRequest] = []

    def peak(request: PeakRequest) -> Peak:
        asked.append(request)
        return Peak(bytes=1000 + len(asked), without_model_bytes=10, what="told by the test")

    # What a process really says is the claim of the next test: each takes seconds.
    monkeypatch.setattr(module, "peak_of", peak)
    evaluation = {"windows": 2, "prompts": [], "latency": SHORT.model_dump()}
    spec = tiny_spec(tiny_folder, text_file, remove=[2, 3], evaluation=evaluation)
    options = RunOptions(out=tmp_path / "out", cache=tmp_path / "cache")
    manifest = compress(spec, options, MemoryRecorder()).manifest
    variants = ("dense", "pruned", "repaired")
    assert [request.subject.variants for request in asked] == [(name,) for name in variants]
    for name in (f"{metric}_{variant}" for metric in LATENCY_METRICS for variant in variants):
        assert manifest.metrics[name] > 0  # type: ignore[operator]
        assert manifest.details[name]["device"] == "cpu"
    detail = manifest.details["decode_tokens_per_second_repaired"]
    assert (detail["rounds"], detail["prompt_tokens"], detail["new_tokens"]) == (2, 6, 2)
    assert detail["range"][0] <= manifest.metrics["decode_tokens_per_second_repaired"] <= detail["range"][1]
    assert manifest.metrics["weight_bytes_pruned"] < manifest.metrics["weight_bytes_repaired"]  # type: ignore[operator]
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["rows"]
    assert {row["metric"] for row in rows} >= LATENCY_METRICS
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| prefill_tokens_per_second |" in card
    # The model index compares models, not machines.
    assert "tokens_per_second" not in card.split("---")[1]


def test_peak_memory_is_that_of_the_model_and_not_of_its_making(tmp_path: Path) -> None:
    """A process of its own loads the source, cuts it, forgets what went, and is then weighed."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    torch.manual_seed(0)
    dense = LlamaForCausalLM(config)
    folder = save_tiny_model(dense, tmp_path / "model")
    source = resolve(
        LocalModel(path=str(folder)), catalog=builtin_catalog(), cache=tmp_path, hub_token=None, log=print
    )
    subject = Subject(
        source=source,
        is_checkpoint=False,
        dtype="auto",
        device="cpu",
        variants=("pruned",),
        layer_count=8,
        removed=tuple(range(1, 7)),
    )
    peak = peak_of(PeakRequest(subject=subject, prompt_tokens=8, new_tokens=2))
    assert peak is not None
    of_model = peak.bytes - peak.without_model_bytes
    whole = weight_bytes(dense)
    # Two of eight layers are left; the rest of the bound is for what libraries load when first used.
    assert whole / 4 * 0.9 < of_model < whole * 0.9, (peak, whole)


def tiny_subject(folder: Path) -> Subject:
    """A model of two layers."""
    path = save_tiny_model(tiny_llama(2), folder / "model")
    source = resolve(
        LocalModel(path=str(path)), catalog=builtin_catalog(), cache=folder, hub_token=None, log=print
    )
    return Subject(source=source, is_checkpoint=False, dtype="auto", device="cpu", variants=("dense",))


def test_a_process_that_cannot_measure_says_nothing(tmp_path: Path) -> None:
    """A model that is not there gives no figure, and no error."""
    subject = tiny_subject(tmp_path)
    subject = subject.model_copy(update={"source": replace(subject.source, path=tmp_path / "gone")})
    assert peak_of(PeakRequest(subject=subject, prompt_tokens=2, new_tokens=1)) is None


def test_a_process_that_measures_ends_with_whoever_asked(tmp_path: Path) -> None:
    """Long before its work is done."""
    endless = PeakRequest(subject=tiny_subject(tmp_path), prompt_tokens=8, new_tokens=10**7)
    check_ends_with_whoever_asked(MODULE, endless, tmp_path, at_work=1)
