from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from ghosted_core.calibration import gather_statistics
from ghosted_core.data import batches
from ghosted_core.errors import NonFiniteError
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.model.surgery import repaired_model
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import Logged, MemoryRecorder, Stage, StageFinished, StageProgressed, StageStarted
from ghosted_core.recovery import SOLVERS, Outcome, RecoveryOperator, RecoverySolver, solver_for
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.sequential import layer_segment
from ghosted_core.statistics import StatisticsRequest
from tests.repairing import LAYERS, TOKENS, lively_llama, recovery_of, repaired, stored, texts_of

BATCHES = 2  # calibration and held-out windows of `texts_of` make one each
REPAIRS = [name for name in SOLVERS if name != "none"]


@pytest.fixture
def layer_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The indices of the layers that run, whichever model they belong to."""
    calls: list[int] = []
    stock = LlamaDecoderLayer.forward

    def counted(self: LlamaDecoderLayer, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.self_attn.layer_idx)
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(LlamaDecoderLayer, "forward", counted)
    return calls


def corrections(outcomes: list[Outcome]) -> list[torch.Tensor]:
    return [outcome.correction for outcome in outcomes if isinstance(outcome, RecoveryOperator)]


@pytest.mark.parametrize("name", REPAIRS)
def test_one_pass_serves_all_boundaries(name: str, layer_calls: list[int], tmp_path: Path) -> None:
    """Three cuts or one, each layer before the last state runs once a batch."""
    settings = {"epochs": 1} if name == "replace_me_cosine" else {}
    for removed in ([4], [1, 3, 4]):
        layer_calls.clear()
        repaired(lively_llama(), removed, tmp_path, name, **settings)
        assert layer_calls == [0, 1, 2, 3, 4] * BATCHES


def test_sequential_costs_at_most_two_passes(layer_calls: list[int], tmp_path: Path) -> None:
    """Whatever the number of cuts: every layer at most once a batch on either stream."""
    for removed in ([1, 3], [0, 2, 4], [1, 3, 5]):
        layer_calls.clear()
        repaired(lively_llama(), removed, tmp_path, "ghosted", fit="sequential")
        last = max(removed) + 1
        kept = [layer for layer in range(min(removed) + 1, last) if layer not in removed]
        assert len(layer_calls) == (last + len(kept)) * BATCHES
        assert len(layer_calls) <= 2 * LAYERS * BATCHES


def test_sequential_and_dense_agree_on_one_boundary(tmp_path: Path) -> None:
    """Before the first cut there is but one stream."""
    dense, sequential = (
        corrections(repaired(lively_llama(), [2, 3], tmp_path, "ghosted", fit=fit)[1])[0]
        for fit in ("dense", "sequential")
    )
    assert torch.equal(dense, sequential)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_later_cut_is_fitted_on_the_patched_stream(dtype: torch.dtype, tmp_path: Path) -> None:
    """X_pre from a model with the cuts before it repaired, X_post of the unpruned one, by lstsq."""
    model, texts = lively_llama().to(dtype), texts_of(windows=5)
    settings = {"fit": "sequential", "ridge": 0.0}
    plan, outcomes, _ = repaired(model, [1, 3, 5], tmp_path, "ghosted", texts, **settings)
    done = dict(zip(plan.boundaries, corrections(outcomes), strict=True))
    tokens = texts.calibration.tokens
    for count, boundary in enumerate(plan.boundaries):
        earlier = plan.boundaries[:count]
        patched = model
        if earlier:
            partial = PruningPlan(LAYERS, earlier)
            patched = repaired_model(model, partial, {b: done[b] for b in earlier})
        at = boundary.start - count
        entering = ResidualStream(patched, family_of("llama")).read(tokens, [at])[at].flatten(0, 1).double()
        leaving = stored(model, tokens, boundary).leaving.flatten(0, 1)
        expected = torch.linalg.lstsq(entering, leaving - entering).solution
        assert_close(done[boundary], expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-2)


def test_sequential_fits_end_closer_to_the_unpruned_model(tmp_path: Path) -> None:
    """On the text that they were fitted on, errors that one cut leaves are seen by the next."""
    texts, left = texts_of(windows=12), []
    for fit in ("dense", "sequential"):
        dense = lively_llama()
        plan, outcomes, _ = repaired(dense, [2, 5], tmp_path, "ghosted", texts, fit=fit)
        model = repaired_model(dense, plan, dict(zip(plan.boundaries, corrections(outcomes), strict=True)))
        # The last operator sits before the final norm: apply it to the state that enters it.
        state = ResidualStream(model, family_of("llama")).read(texts.calibration.tokens, [4])[4]
        state = model.model.norm.ghosted_operator(state)
        wanted = ResidualStream(dense, family_of("llama")).read(texts.calibration.tokens, [LAYERS])[LAYERS]
        left.append(float((state - wanted).norm() / wanted.norm()))
    assert left[1] < left[0]


def test_sequential_leaves_nothing_on_disk_and_reports_itself(tmp_path: Path) -> None:
    """Tokens count once a boundary; the report says how it was fitted."""
    _, outcomes, recorder = repaired(lively_llama(), [1, 3], tmp_path, "ghosted", fit="sequential")
    assert list(tmp_path.iterdir()) == []
    assert {outcome.report.fit for outcome in outcomes} == {"sequential"}
    assert all(outcome.report.held_out_relative_residual is not None for outcome in outcomes)
    started = next(e for e in recorder.events if isinstance(e, StageStarted))
    assert max(e.done for e in recorder.events if isinstance(e, StageProgressed)) == started.total
    assert [e.stage for e in recorder.events if isinstance(e, StageFinished)] == [Stage.CALIBRATE]


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (0, 2), (2, 5), (4, 6)])
def test_a_segment_continues_a_stream(start: int, stop: int) -> None:
    """Layers start .. stop - 1, given the state that enters them, give the state that leaves them."""
    model = lively_llama()
    states = ResidualStream(model, family_of("llama")).read(TOKENS, range(LAYERS + 1))
    found = layer_segment(model, start, stop).resume(TOKENS, states[start])
    assert_close(found, states[stop], rtol=1e-5, atol=1e-5)


def test_one_pass_can_serve_several_repairs(tmp_path: Path, layer_calls: list[int]) -> None:
    """The union of all requests, gathered once, gives each repair what it gets alone."""
    model, texts = lively_llama(), texts_of()
    plan = PruningPlan.from_removed([1, 3], layer_count=LAYERS)
    solvers = [solver_for(recovery_of(name)) for name in REPAIRS if name != "replace_me_cosine"]
    request = StatisticsRequest()
    for solver in solvers:
        assert isinstance(solver, RecoverySolver)
        request |= solver.request
    stream = ResidualStream(model, family_of("llama"))
    fit, held_out = (
        gather_statistics(stream, plan, request, "uniform", batches(windows))
        for windows in (texts.calibration, texts.held_out)
    )
    assert len(layer_calls) == 4 * BATCHES
    for solver in solvers:
        assert isinstance(solver, RecoverySolver)
        alone = repaired(model, [1, 3], tmp_path, solver.settings.name, texts)[1]
        for boundary, outcome in zip(plan.boundaries, alone, strict=True):
            shared = solver.solve(boundary, fit[boundary], held_out[boundary]).report
            assert shared.relative_residual == pytest.approx(outcome.report.relative_residual, rel=1e-12)


@pytest.mark.parametrize("name", REPAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_repair_gives_a_model_that_answers(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Several cuts, fp32 and bf16: logits are finite, and residuals are figures."""
    dense = lively_llama().to(dtype)
    settings = {"epochs": 1} if name == "replace_me_cosine" else {}
    plan, outcomes, _ = repaired(dense, [1, 3, 4], tmp_path, name, **settings)
    operators = {o.boundary: o.correction for o in outcomes if isinstance(o, RecoveryOperator)}
    model = repaired_model(dense, plan, operators, folded_tensors(dense, family_of("llama"), plan, outcomes))
    assert bool(torch.isfinite(model(TOKENS).logits).all())
    assert all(outcome.report.relative_residual > 0 for outcome in outcomes)
    assert (type(model) is type(dense)) == (not operators)


@pytest.mark.parametrize("name", [name for name in REPAIRS if name != "replace_me_cosine"])
def test_broken_activations_are_a_typed_error(name: str, tmp_path: Path) -> None:
    """Infinity in the stream stops every repair before anything is fitted."""
    model = lively_llama()
    model.model.layers[2].mlp.down_proj.bias[3] = float("inf")
    with pytest.raises(NonFiniteError):
        repaired(model, [2], tmp_path, name)


def test_broken_activations_end_training(tmp_path: Path) -> None:
    """Not-a-number in T is never folded."""
    model = lively_llama()
    model.model.layers[2].mlp.down_proj.bias[3] = float("nan")
    with pytest.raises(NonFiniteError):
        repaired(model, [2], tmp_path, "replace_me_cosine", epochs=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "settings"),
    [("replace_me_cosine", {"epochs": 1}), ("ghosted", {"fit": "sequential"}), ("prune_and_comp", {})],
)
def test_held_out_tokens_are_optional(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Without any, the report has no figure for them."""
    texts = texts_of(held_out=0)
    for outcome in repaired(lively_llama(), [1, 3], tmp_path, name, texts, **settings)[1]:
        assert outcome.report.held_out_tokens == 0
        assert outcome.report.held_out_relative_residual is None


@pytest.fixture
def massive_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer 2 writes into the first token of each window what dwarfs all else."""
    stock = LlamaDecoderLayer.forward

    def writing(self: LlamaDecoderLayer, *args: Any, **kwargs: Any) -> Any:
        states = stock(self, *args, **kwargs)
        if self.self_attn.layer_idx == 2:
            states[..., 0, 5] += 1e4
        return states

    monkeypatch.setattr(LlamaDecoderLayer, "forward", writing)


def warnings(recorder: MemoryRecorder) -> list[str]:
    return [e.message for e in recorder.events if isinstance(e, Logged) and e.level == "warning"]


@pytest.mark.usefixtures("massive_activation")
@pytest.mark.parametrize("fit", ["dense", "sequential"])
def test_a_cut_that_takes_a_massive_activation_along_is_told(fit: str, tmp_path: Path) -> None:
    """The repair spends itself on one token of each window; a cut elsewhere is not meant."""
    _, outcomes, recorder = repaired(lively_llama(), [2, 4], tmp_path, "ghosted", fit=fit)
    shares = [outcome.report.first_token_share for outcome in outcomes]
    assert shares[0] == pytest.approx(1.0, abs=0.01)
    said = warnings(recorder)
    assert said[0].startswith("100% of what layers 2 to 2 change")
    # Fitted in turn, the second cut has to make good what the first repair left of that token.
    assert len(said) == (2 if fit == "sequential" else 1)


@pytest.mark.usefixtures("massive_activation")
@pytest.mark.parametrize(
    ("name", "settings"), [("prune_and_comp", {}), ("ghosted", {"weighting": "inverse_norm"})]
)
def test_what_the_warning_is_not_for(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """A scaling minimises nothing, and other weights are what the warning advises."""
    _, (outcome,), recorder = repaired(lively_llama(), [2], tmp_path, name, **settings)
    assert warnings(recorder) == []
    assert outcome.report.first_token_share == pytest.approx(1.0, abs=0.01)
