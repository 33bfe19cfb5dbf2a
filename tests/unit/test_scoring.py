import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close
from transformers import PreTrainedModel

from ghosted_core.criteria import LayerScores
from ghosted_core.data import Windows
from ghosted_core.errors import InvalidSpecError, NonFiniteError
from ghosted_core.evaluate.perplexity import perplexity
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.surgery import pruned_model
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import MemoryRecorder, NullRecorder, StageFinished, StageProgressed, StageStarted
from ghosted_core.scoring import score_layers
from ghosted_core.spec import STRATEGIES, JobSpec
from ghosted_core.testing import tiny_llama

LAYERS = 8
COUNT = 2
STRATEGY_OF = {
    form.model_fields["name"].default: {"name": form.model_fields["name"].default} for form in STRATEGIES
} | {"explicit": {"name": "explicit", "indices": "1,3-4"}}


def windows(count: int = 5, length: int = 48) -> Windows:
    generator = torch.Generator().manual_seed(11)
    return Windows(torch.randint(3, 320, (count, length), generator=generator), {})


def spec(strategy: Any, layers: Any = COUNT) -> JobSpec:
    named = isinstance(strategy, dict) and strategy["name"] == "explicit"
    return JobSpec.model_validate({"model": "a/b", "layers": None if named else layers, "strategy": strategy})


def scored(
    strategy: Any, model: PreTrainedModel | None = None, text: Windows | None = None, layers: Any = COUNT
) -> LayerScores:
    return score_layers(
        spec(strategy, layers),
        model if model is not None else tiny_llama(LAYERS),
        text if text is not None else windows(),
        NullRecorder(),
        ProcessMeter(torch.device("cpu")),
    )


@torch.no_grad()
def stored_states(model: PreTrainedModel) -> list[torch.Tensor]:
    """x_0 .. x_L of all windows, kept whole."""
    last: list[torch.Tensor] = []
    handle = model.model.norm.register_forward_pre_hook(lambda _, args: last.append(args[0]))
    states = model.model(windows().tokens, output_hidden_states=True).hidden_states
    handle.remove()
    return [state.double() for state in (*states[:-1], last[0])]


def token_cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    return float(functional.cosine_similarity(left, right, dim=-1).mean())


def channel_cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    return float(functional.cosine_similarity(left, right, dim=1).mean())


def last_angle(left: torch.Tensor, right: torch.Tensor) -> float:
    cosine = functional.cosine_similarity(left[:, -1], right[:, -1], dim=-1)
    return float((torch.arccos(cosine.clamp(-1, 1)) / math.pi).mean())


Pair = Callable[[torch.Tensor, torch.Tensor], float]


@pytest.mark.parametrize(
    ("name", "measure", "starts", "best"),
    [
        ("streamline", token_cosine, range(1, 7), max),
        ("streamline_channel", channel_cosine, range(1, 6), max),
        ("angular", last_angle, range(7), min),
    ],
)
def test_runs_are_scored_as_on_stored_states(
    name: str, measure: Pair, starts: range, best: Callable[..., int]
) -> None:
    """The whole way from model to choice equals torch's own functions on hidden states kept in memory."""
    states = stored_states(tiny_llama(LAYERS))
    expected = {start: measure(states[start], states[start + COUNT]) for start in starts}
    scores = scored(name)
    assert_close(dict(scores.candidates), expected, rtol=0, atol=1e-6)
    winner = best(expected, key=expected.__getitem__)
    assert scores.removed == (winner, winner + 1)
    assert (scores.sequences, scores.sequence_length) == (5, 48)


@pytest.mark.parametrize(
    ("name", "measure", "layers"),
    [("shortgpt", token_cosine, range(8)), ("shortgpt_channel", channel_cosine, range(7))],
)
def test_influence_is_that_of_stored_states(name: str, measure: Pair, layers: range) -> None:
    """And the layers of least influence go."""
    states = stored_states(tiny_llama(LAYERS))
    expected = {layer: 1 - measure(states[layer], states[layer + 1]) for layer in layers}
    scores = scored(name)
    assert_close(dict(scores.candidates), expected, rtol=0, atol=1e-6)
    assert scores.removed == tuple(sorted(sorted(expected, key=expected.__getitem__)[:COUNT]))


def loss_of(model: PreTrainedModel, removed: tuple[int, ...], text: torch.Tensor) -> float:
    """Mean NLL of the model that is built without these layers."""
    built = pruned_model(model, PruningPlan.from_removed(removed, layer_count=LAYERS))
    return perplexity(built, [text]).nll


def test_perplexity_is_that_of_the_pruned_models() -> None:
    """Each layer's score is the perplexity of the model built without it, on the asked text."""
    model = tiny_llama(LAYERS)
    scores = scored({"name": "perplexity", "sequences": 3, "sequence_length": 16}, model)
    text = windows().tokens[:3, :16]
    expected = {layer: math.exp(loss_of(model, (layer,), text)) for layer in range(LAYERS)}
    assert_close(dict(scores.candidates), expected, rtol=1e-6, atol=0)
    assert (scores.sequences, scores.sequence_length) == (3, 16)


def test_sleb_is_brute_force() -> None:
    """Greedy over models that are really built, first and last layer never tried."""
    model, removed = tiny_llama(LAYERS), []
    for _ in range(3):
        left = [layer for layer in range(1, LAYERS - 1) if layer not in removed]
        costs = {layer: loss_of(model, (*removed, layer), windows().tokens) for layer in left}
        removed.append(min(costs, key=costs.__getitem__))
    scores = scored("sleb", model, layers=3)
    assert [layer for layer, _ in scores.steps] == removed
    assert scores.removed == tuple(sorted(removed))
    assert scores.steps[-1][1] == pytest.approx(costs[removed[-1]], rel=1e-6)


def test_taylor_looks_at_10_times_128_tokens() -> None:
    """By default, of the first calibration windows; of fewer or shorter ones at all there is."""
    text = windows(count=12, length=140)
    scores = scored("taylor", text=text)
    assert (scores.sequences, scores.sequence_length) == (10, 128)
    assert scores == scored("taylor", text=text.head(10, 128))
    short = scored("taylor", text=windows(count=2, length=20))
    assert (short.sequences, short.sequence_length) == (2, 20)


def test_magnitude_reads_no_text() -> None:
    """Two texts, one result, which says that no tokens were looked at."""
    assert scored("magnitude") == scored("magnitude", text=windows(count=1, length=8))
    assert scored("magnitude").sequences == 0


@pytest.mark.parametrize("name", STRATEGY_OF)
def test_the_model_is_left_as_it_was(name: str) -> None:
    """Logits bit by bit, flags, gradients, hooks and forwards."""
    model = tiny_llama(LAYERS)
    before = model(windows().tokens).logits
    scored(STRATEGY_OF[name], model)
    assert torch.equal(model(windows().tokens).logits, before)
    assert not any(p.requires_grad or p.grad is not None for p in model.parameters())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in module.__dict__


@pytest.mark.parametrize("name", STRATEGY_OF)
def test_progress_reaches_its_total(name: str) -> None:
    """One stage that counts up to what it announced; none where nothing is looked at."""
    recorder = MemoryRecorder()
    score_layers(
        spec(STRATEGY_OF[name]), tiny_llama(LAYERS), windows(), recorder, ProcessMeter(torch.device("cpu"))
    )
    if name in {"reverse", "explicit"}:
        assert recorder.events == []
        return
    started, *progressed, finished = recorder.events
    assert isinstance(started, StageStarted)
    assert isinstance(finished, StageFinished)
    done = [event.done for event in progressed if isinstance(event, StageProgressed)]
    assert done[-1] == started.total
    assert all(earlier < later for earlier, later in itertools.pairwise(done))


@pytest.mark.parametrize("name", ["streamline", "shortgpt", "angular", "taylor", "perplexity"])
def test_batching_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Window by window or all windows at once: the same choice, and scores equal within rounding."""
    whole = scored(name)
    monkeypatch.setattr("ghosted_core.data.BATCH_TOKENS", 1)
    single = scored(name)
    assert single.removed == whole.removed
    assert_close(dict(single.candidates), dict(whole.candidates), rtol=1e-5, atol=1e-6)


def test_a_share_of_the_layers() -> None:
    """25% of 8 layers are 2."""
    assert scored("shortgpt", layers="25%") == scored("shortgpt", layers=2)


def test_what_cannot_be_removed_is_refused_before_any_work() -> None:
    """No stage begins."""
    recorder = MemoryRecorder()
    with pytest.raises(InvalidSpecError, match="protects"):
        score_layers(
            spec("taylor", 3), tiny_llama(LAYERS), windows(), recorder, ProcessMeter(torch.device("cpu"))
        )
    assert recorder.events == []


@pytest.mark.parametrize("name", ["streamline", "taylor", "perplexity", "sleb"])
def test_a_broken_model_is_a_typed_error(name: str) -> None:
    """Not a choice of layers from numbers that are none."""
    model = tiny_llama(LAYERS)
    model.model.layers[0].mlp.up_proj.weight.data.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        scored(name, model)


def test_criteria_that_see_the_same_are_heard_too() -> None:
    """As if each had been asked itself; a criterion that measures losses asks for no more of them."""
    found = scored("shortgpt")
    assert {other.criterion for other in found.others} == {
        "streamline", "streamline_channel", "shortgpt_channel", "angular",
    }  # fmt: skip
    for other in found.others:
        own = scored(other.criterion)
        assert (other.removed, other.candidates, other.best) == (own.removed, own.candidates, own.best)
    for strategy in ("sleb", "perplexity", "magnitude", "reverse"):
        assert scored(strategy).others == ()
