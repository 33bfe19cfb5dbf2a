from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.testing import tiny_llama, tiny_mistral

LAYERS = 6
CUTS = [[0], [5], [2, 3], [0, 2, 5], [4, 5], [0, 1], [1, 3, 4]]
MODELS: list[Callable[[], PreTrainedModel]] = [tiny_llama, tiny_mistral, lambda: tiny_llama(tied=True)]
TOKENS = torch.arange(3, 40)[None]


def corrections(plan: PruningPlan, generator: torch.Generator) -> dict[Boundary, Tensor]:
    return {b: 0.1 * torch.randn(32, 32, generator=generator, dtype=torch.float64) for b in plan.boundaries}


@torch.no_grad()
def by_hand(dense: PreTrainedModel, plan: PruningPlan, operators: dict[Boundary, Tensor]) -> Tensor:
    """Logits of the kept layers and the operators, run one after another."""
    hidden = dense.model.embed_tokens(TOKENS)
    positions = dense.model.rotary_emb(hidden, position_ids=torch.arange(TOKENS.shape[1])[None])
    starts = {boundary.start: boundary for boundary in operators}
    for index in range(LAYERS):
        if index in starts:
            hidden = hidden + hidden @ operators[starts[index]].float()
        if index in plan.kept:
            hidden = dense.model.layers[index](hidden, position_embeddings=positions, attention_mask=None)
    return dense.lm_head(dense.model.norm(hidden))


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("removed", CUTS)
def test_the_patched_model_computes_what_the_plan_says(
    make: Callable[[], PreTrainedModel], removed: list[int], generator: torch.Generator
) -> None:
    """Contiguous, scattered and edge cuts: kept layers in order, operators at the boundaries."""
    dense, plan = make(), PruningPlan.from_removed(removed, layer_count=LAYERS)
    operators = corrections(plan, generator)
    model = repaired_model(dense, plan, operators)
    torch.testing.assert_close(model(TOKENS).logits, by_hand(dense, plan, operators), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        pruned_model(dense, plan)(TOKENS).logits, by_hand(dense, plan, {}), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("removed", CUTS)
def test_cached_generation_equals_uncached(removed: list[int], generator: torch.Generator) -> None:
    """Layers are renumbered, so the key-value cache finds its places."""
    plan = PruningPlan.from_removed(removed, layer_count=LAYERS)
    model = repaired_model(tiny_llama(), plan, corrections(plan, generator))
    cached, uncached = (
        model.generate(TOKENS, max_new_tokens=16, do_sample=False, use_cache=use) for use in (True, False)
    )
    assert torch.equal(cached, uncached)


def test_a_zero_operator_changes_nothing() -> None:
    """I + 0 is the cut without repair, bit for bit."""
    dense, plan = tiny_llama(), PruningPlan.from_removed([1, 2], layer_count=LAYERS)
    zeros = {b: torch.zeros(32, 32) for b in plan.boundaries}
    assert torch.equal(
        repaired_model(dense, plan, zeros)(TOKENS).logits, pruned_model(dense, plan)(TOKENS).logits
    )


def test_weights_are_shared_and_the_source_is_untouched(generator: torch.Generator) -> None:
    """Surgery copies no weights, and the unpruned model still answers as before."""
    dense = tiny_llama(tied=True)
    before = dense(TOKENS).logits
    plan = PruningPlan.from_removed([2, 3], layer_count=LAYERS)
    model = repaired_model(dense, plan, corrections(plan, generator))
    assert model.model.layers[2].mlp.up_proj.weight is dense.model.layers[4].mlp.up_proj.weight
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(dense(TOKENS).logits, before)
    assert dense.config.num_hidden_layers == LAYERS


def test_nothing_is_left_without_storage(generator: torch.Generator) -> None:
    """Every parameter and buffer of the new model holds data."""
    plan = PruningPlan.from_removed([0, 5], layer_count=LAYERS)
    model = repaired_model(tiny_llama(), plan, corrections(plan, generator))
    assert not [
        name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if tensor.is_meta
    ]
