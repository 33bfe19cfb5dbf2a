import subprocess
from typing import Any

import pytest
import torch

from ghosted_core.data import Windows
from ghosted_core.evaluate.suite import Measured, Models, measure
from ghosted_core.meter import ProcessMeter
from ghosted_core.recorder import (
    Logged,
    MemoryRecorder,
    Stage,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from ghosted_core.spec import Evaluation
from ghosted_core.testing import tiny_llama
from tests.tiny import CHAT_TEMPLATE
from tests.tokenizers_made_here import byte_tokenizer

METER = ProcessMeter(torch.device("cpu"))


def measured(text: Windows | None = None, **asked: Any) -> tuple[Measured, MemoryRecorder]:
    tokenizer, memory = byte_tokenizer(), MemoryRecorder()
    tokenizer.chat_template = CHAT_TEMPLATE
    models = Models({"dense": tiny_llama(2), "pruned": tiny_llama(1)}, tokenizer, text)
    evaluation = Evaluation.model_validate({"new_tokens": 3, **asked})
    return measure(evaluation, models, memory, METER), memory


def test_continuations_are_counted_one_by_one() -> None:
    """Of every model, in a stage of their own that ends where its total is, text or no text."""
    found, memory = measured(prompts=["a", "b", "c"], windows=0)
    stages = [e for e in memory.events if isinstance(e, StageStarted | StageProgressed | StageFinished)]
    assert stages[0] == StageStarted(Stage.EVALUATE, 6, "continuations")
    assert stages[1:-1] == [StageProgressed(Stage.EVALUATE, done) for done in range(1, 7)]
    assert isinstance(stages[-1], StageFinished)
    assert [len(of_one) for of_one in found.continuations.values()] == [3, 3]


def test_text_is_read_before_and_counted_by_itself() -> None:
    """In tokens of all models."""
    text = Windows(torch.arange(16).view(2, 8), {"windows": 2, "length": 8})
    _, memory = measured(text, prompts=["a"])
    started = [e for e in memory.events if isinstance(e, StageStarted)]
    assert [(one.unit, one.total) for one in started] == [("tokens", 32), ("continuations", 2)]


def test_where_nothing_is_asked_for_no_stage_is_begun() -> None:
    """And every model has gone on from no prompt."""
    found, memory = measured(prompts=[], windows=0)
    assert memory.events == []
    assert found.continuations == {"dense": (), "pruned": ()}


def test_all_models_read_the_same_prompts_which_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process renders the template for all; a prompt that cannot be read is logged once."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    found, memory = measured(prompts=["a", "b" * 300, "c"], windows=0)
    assert len(started) == 1
    assert len([event for event in memory.events if isinstance(event, Logged)]) == 1
    assert {tuple(one.prompt for one in of_one) for of_one in found.continuations.values()} == {("a", "c")}
    assert {metric.detail["prompts"] for metric in found.metrics} == {2}
