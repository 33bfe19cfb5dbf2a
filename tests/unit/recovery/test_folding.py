from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

from ghosted_core.errors import NonFiniteError, UnsupportedRepairError
from ghosted_core.model.families import Family, family_of
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recovery import FitReport, MlpMap, Outcome, StreamScale
from ghosted_core.recovery.folding import folded_tensors, stream_factors
from tests.repairing import LAYERS, TOKENS, lively_llama, repaired

LLAMA = family_of("llama")
CUTS = [[0], [5], [2, 3], [0, 2, 5], [1, 3, 4], [4, 5]]


def report(boundary: Boundary) -> FitReport:
    return FitReport(boundary, "made up", 0, 0, 0.0, None)


def scales(plan: PruningPlan) -> list[Outcome]:
    return [StreamScale(b, 1.5 + 0.25 * i, report(b)) for i, b in enumerate(plan.boundaries)]


def maps(plan: PruningPlan, generator: torch.Generator) -> list[Outcome]:
    noise = [torch.randn(32, 32, generator=generator, dtype=torch.float64) for _ in plan.boundaries]
    eye = torch.eye(32, dtype=torch.float64)
    return [MlpMap(b, eye + 0.2 * n, report(b)) for b, n in zip(plan.boundaries, noise, strict=True)]


def folded(dense: PreTrainedModel, plan: PruningPlan, outcomes: list[Outcome]) -> PreTrainedModel:
    return repaired_model(dense, plan, {}, folded_tensors(dense, LLAMA, plan, outcomes))


def with_mapped_mlps(dense: PreTrainedModel, plan: PruningPlan, outcomes: list[Outcome]) -> Tensor:
    """Logits of the pruned model whose MLP outputs are multiplied by T as they leave."""
    model = pruned_model(dense, plan)
    for outcome in outcomes:
        assert isinstance(outcome, MlpMap)
        matrix = outcome.matrix.to(dense.dtype)
        layer = model.model.layers[plan.position(outcome.boundary) - 1]
        layer.mlp.register_forward_hook(lambda *seen, matrix=matrix: seen[2] @ matrix)
    return model(TOKENS).logits


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("removed", CUTS)
def test_folded_scales_equal_scales_at_the_boundaries(removed: list[int], *, tied: bool) -> None:
    """Logits of the stock model equal those of explicit c x at each cut: biases, tied heads, edges."""
    dense, plan = lively_llama(tied=tied), PruningPlan.from_removed(removed, layer_count=LAYERS)
    outcomes = scales(plan)
    explicit = repaired_model(
        dense,
        plan,
        {o.boundary: (o.factor - 1) * torch.eye(32) for o in outcomes if isinstance(o, StreamScale)},
    )
    model = folded(dense, plan, outcomes)
    assert type(model) is type(dense)
    assert_close(model(TOKENS).logits, explicit(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


@pytest.mark.parametrize("removed", [cut for cut in CUTS if 0 not in cut])
def test_folded_maps_equal_maps_of_the_mlps_output(removed: list[int], generator: torch.Generator) -> None:
    """W <- T' W and b <- b T do what m T does, at several boundaries."""
    dense, plan = lively_llama(), PruningPlan.from_removed(removed, layer_count=LAYERS)
    outcomes = maps(plan, generator)
    model = folded(dense, plan, outcomes)
    assert_close(model(TOKENS).logits, with_mapped_mlps(dense, plan, outcomes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["prune_and_comp", "replace_me"])
def test_bfloat16_folds_to_its_own_precision(name: str, tmp_path: Path) -> None:
    """A bfloat16 model answers as the float32 model of the same weights, to bfloat16's rounding."""
    dense = lively_llama().to(torch.bfloat16)
    plan, outcomes, _ = repaired(dense, [2, 3], tmp_path, name)
    model = folded(dense, plan, outcomes)
    assert model.dtype == torch.bfloat16
    wide = lively_llama()
    wide.load_state_dict(dense.state_dict())
    exact = folded(wide, plan, outcomes)(TOKENS).logits
    difference = (model(TOKENS).logits.float() - exact).norm() / exact.norm()
    assert float(difference) < 0.05


def test_the_unpruned_model_is_not_touched_and_shares_what_stays(generator: torch.Generator) -> None:
    """Only replaced tensors are new: dense answers as before, pruned and repaired share the others."""
    dense, plan = lively_llama(tied=True), PruningPlan.from_removed([3, 4], layer_count=LAYERS)
    before = dense(TOKENS).logits
    scaled, mapped = folded(dense, plan, scales(plan)), folded(dense, plan, maps(plan, generator))
    assert torch.equal(dense(TOKENS).logits, before)
    layers = dense.model.layers
    assert scaled.model.layers[2].mlp.up_proj.weight is layers[2].mlp.up_proj.weight
    assert scaled.model.layers[3].mlp.down_proj.weight is layers[5].mlp.down_proj.weight
    assert scaled.model.layers[2].mlp.down_proj.weight is not layers[2].mlp.down_proj.weight
    assert mapped.model.layers[1].mlp.down_proj.weight is layers[1].mlp.down_proj.weight
    assert mapped.model.layers[2].mlp.down_proj.weight is not layers[2].mlp.down_proj.weight
    assert mapped.model.embed_tokens.weight is dense.model.embed_tokens.weight


def test_cached_generation_equals_uncached(generator: torch.Generator) -> None:
    """A folded model is a stock model."""
    dense, plan = lively_llama(), PruningPlan.from_removed([2, 4], layer_count=LAYERS)
    for outcomes in (scales(plan), maps(plan, generator)):
        model = folded(dense, plan, outcomes)
        cached, uncached = (
            model.generate(TOKENS, max_new_tokens=8, do_sample=False, use_cache=use) for use in (True, False)
        )
        assert torch.equal(cached, uncached)


def test_position_embeddings_and_experts_are_data() -> None:
    """Every embedding in the table is scaled, a bare expert tensor with its bias too, norms are not."""
    names = ["wte.weight", "wpe.weight", "h.0.ln.weight", "h.0.attn.out.weight", "h.0.attn.out.bias"]
    names += ["h.0.moe.down", "h.0.moe.down_bias", "h.0.moe.down_other", "norm.weight", "norm.bias"]
    names += ["h.2.attn.out.weight", "h.2.moe.down"]
    tensors = {name: torch.ones(1) for name in names} | {"head.weight": torch.ones(1)}
    family = Family(
        "made_up",
        "MadeUp",
        layers="h",
        final_norm="norm",
        head="head",
        embeddings=("wte", "wpe"),
        attention_output=("attn.out",),
        mlp_output=("moe.down", "mlp.down"),
    )
    plan = PruningPlan.from_removed([1], layer_count=3)
    scale = StreamScale(plan.boundaries[0], 2.0, report(plan.boundaries[0]))
    scaled = {"wte.weight", "wpe.weight", "h.0.attn.out.weight", "h.0.attn.out.bias"}
    scaled |= {"h.0.moe.down", "h.0.moe.down_bias"}
    assert stream_factors(tensors, family, plan, [scale]) == dict.fromkeys(scaled, 2.0)
    tied = stream_factors({**tensors, "head.weight": tensors["wte.weight"]}, family, plan, [scale])
    assert tied == dict.fromkeys(scaled, 2.0) | {"norm.weight": 0.5, "norm.bias": 0.5}
    del tensors["h.0.attn.out.weight"], tensors["h.0.attn.out.bias"]
    with pytest.raises(UnsupportedRepairError, match=r"attn\.out"):
        stream_factors(tensors, family, plan, [scale])


def test_input_first_weights_are_multiplied_from_the_right(generator: torch.Generator) -> None:
    """Weights stored as (in, out), as in GPT-2: a (W T) = (a W) T."""
    weight, bias, features, matrix = (
        torch.randn(*shape, generator=generator) for shape in ((16, 8), (8,), (5, 16), (8, 8))
    )
    model = torch.nn.Module()
    layer = torch.nn.Module()
    layer.weight, layer.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    model.h = torch.nn.ModuleList([torch.nn.ModuleDict({"down": layer}), torch.nn.Module()])
    family = Family("made_up", "MadeUp", layers="h", mlp_output=("down",), input_first=True)
    plan = PruningPlan.from_removed([1], layer_count=2)
    outcome = MlpMap(plan.boundaries[0], matrix, report(plan.boundaries[0]))
    found = folded_tensors(model, family, plan, [outcome])
    after = features @ found["h.0.down.weight"] + found["h.0.down.bias"]
    assert_close(after, (features @ weight + bias) @ matrix, rtol=1e-4, atol=1e-4)


def test_what_overflows_is_a_typed_error() -> None:
    """Scaled out of the dtype's range, the checkpoint would load and answer nonsense."""
    dense, plan = lively_llama().to(torch.float16), PruningPlan.from_removed([2], layer_count=LAYERS)
    with pytest.raises(NonFiniteError, match=r"embed_tokens|o_proj|down_proj"):
        folded_tensors(dense, LLAMA, plan, [StreamScale(plan.boundaries[0], 1e6, report(plan.boundaries[0]))])
