import pytest
import torch

from ghosted_core.model.families import family_of
from ghosted_core.model.skipping import LayerSkipper
from ghosted_core.model.surgery import pruned_model
from ghosted_core.plan import PruningPlan
from ghosted_core.testing import tiny_llama
from tests.unlike_llama import FALCON, tiny_falcon

LLAMA = family_of("llama")
TOKENS = torch.arange(3, 40)[None]


@torch.no_grad()
@pytest.mark.parametrize("removed", [(2,), (0, 3, 5), (1, 2, 3, 4), ()])
def test_skipping_is_pruning(removed: tuple[int, ...]) -> None:
    """Bit by bit the logits of the model that is built without these layers."""
    model = tiny_llama()
    plan = PruningPlan.from_removed(removed, layer_count=6) if removed else None
    expected = pruned_model(model, plan) if plan is not None else model
    with LayerSkipper(model, LLAMA).without(removed):
        found = model(TOKENS).logits
    assert torch.equal(found, expected(TOKENS).logits)


@torch.no_grad()
def test_layers_that_answer_in_tuples_are_skipped_too() -> None:
    """With all of them skipped, the final norm sees the embeddings."""
    model = tiny_falcon()
    seen: list[torch.Tensor] = []
    model.transformer.ln_f.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with LayerSkipper(model, FALCON).without(range(4)):
        model(TOKENS)
    assert torch.equal(seen[0], model.transformer.word_embeddings(TOKENS))


@torch.no_grad()
def test_the_model_is_left_as_it_was() -> None:
    """Even after an error inside, and even where a layer had a forward of its own."""
    model = tiny_llama()
    before = model(TOKENS).logits
    own = model.model.layers[1].forward
    model.model.layers[1].forward = own
    with pytest.raises(KeyError), LayerSkipper(model, LLAMA).without([1, 2]):
        raise KeyError
    assert model.model.layers[1].__dict__["forward"] is own
    assert "forward" not in model.model.layers[2].__dict__
    assert not any(layer._forward_hooks for layer in model.model.layers)
    assert torch.equal(model(TOKENS).logits, before)
