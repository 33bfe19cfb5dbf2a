import math

import pytest
import torch
from torch.nn import functional

from ghosted_core.evaluate.likeness import likenesses
from ghosted_core.evaluate.mean import Mean
from ghosted_core.evaluate.perplexity import perplexity
from ghosted_core.model.surgery import pruned_model
from ghosted_core.plan import PruningPlan
from ghosted_core.testing import tiny_llama


def windows(generator: torch.Generator, *, count: int = 3, length: int = 150) -> torch.Tensor:
    return torch.randint(3, 320, (count, length), generator=generator)


@torch.no_grad()
def test_it_is_what_all_logits_at_once_say(generator: torch.Generator) -> None:
    """KL(dense || pruned) and equal first choices, as torch has them for the whole text in memory."""
    dense, tokens = tiny_llama(), windows(generator)
    pruned = pruned_model(dense, PruningPlan.from_removed([2, 3], layer_count=6))
    found = likenesses(dense, {"pruned": pruned}, tokens.split(2), lambda _: None)
    likeness = found["pruned"].likeness
    assert likeness is not None
    ours, others = (model(tokens).logits[:, :-1].log_softmax(-1) for model in (pruned, dense))
    divergence = functional.kl_div(ours, others, log_target=True, reduction="none").sum(-1)
    assert likeness.divergence.value == pytest.approx(float(divergence.mean()), rel=1e-4)
    assert likeness.divergence.standard_error == pytest.approx(
        float(divergence.mean(dim=1).std() / math.sqrt(3)), rel=1e-3
    )
    agreement = (ours.argmax(-1) == others.argmax(-1)).double().mean()
    assert likeness.agreement.value == pytest.approx(float(agreement))


def test_perplexities_are_those_of_perplexity(generator: torch.Generator) -> None:
    """Bit by bit, and the dense model has no likeness to itself."""
    dense, tokens = tiny_llama(), windows(generator)
    pruned = pruned_model(dense, PruningPlan.from_removed([5], layer_count=6))
    counted: list[int] = []
    found = likenesses(dense, {"pruned": pruned}, tokens.split(2), counted.append)
    for name, model in (("dense", dense), ("pruned", pruned)):
        assert found[name].perplexity == perplexity(model, tokens.split(2))
    assert found["dense"].likeness is None
    assert sum(counted) == 2 * tokens.numel()


def test_a_model_is_like_itself(generator: torch.Generator) -> None:
    """No divergence, every first choice the same."""
    dense = tiny_llama()
    likeness = likenesses(dense, {"same": dense}, [windows(generator)], lambda _: None)["same"].likeness
    assert likeness is not None
    assert (likeness.divergence.value, likeness.agreement.value) == (0.0, 1.0)


def test_tokens_ruled_out_by_both_do_not_count(generator: torch.Generator) -> None:
    """0 ln 0 is 0, not not-a-number."""
    dense = tiny_llama()
    dense.lm_head.register_forward_hook(
        lambda _module, _args, logits: logits.index_fill(-1, torch.tensor([7]), -math.inf)
    )
    tokens = windows(generator).clamp(min=8)
    likeness = likenesses(dense, {"same": dense}, [tokens], lambda _: None)["same"].likeness
    assert likeness is not None
    assert likeness.divergence.value == 0.0


def test_one_window_has_no_known_error() -> None:
    """It is not-a-number, for the caller to report."""
    assert math.isnan(Mean.of([1.0]).standard_error)
