import gc
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close
from transformers import PreTrainedModel

from ghosted_core.errors import NonFiniteError
from ghosted_core.model import gradients
from ghosted_core.model.families import Family, family_of, layers_of
from ghosted_core.model.gradients import taylor_importance, weight_magnitude
from ghosted_core.testing import tiny_llama
from tests.unlike_llama import (
    FALCON,
    GEMMA2,
    GPT2,
    MIXTRAL,
    tiny_falcon,
    tiny_gemma2,
    tiny_gpt2,
    tiny_mixtral,
)

LLAMA = family_of("llama")


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], Family]] = {
    "llama": (tiny_llama, LLAMA),
    "llama, tied": (lambda: tiny_llama(tied=True), LLAMA),
    "gemma2": (tiny_gemma2, GEMMA2),
    "mixtral": (tiny_mixtral, MIXTRAL),
    "falcon": (tiny_falcon, FALCON),
    "gpt2": (tiny_gpt2, GPT2),
}


def tokens(windows: int = 4) -> torch.Tensor:
    return torch.randint(3, 320, (windows, 24), generator=torch.Generator().manual_seed(5))


def importance(model: PreTrainedModel, family: Family, *batches: torch.Tensor) -> torch.Tensor:
    found = taylor_importance(model, family, list(batches), lambda _: None)
    return torch.tensor(found, dtype=torch.float64)


def direct(model: PreTrainedModel, family: Family, given: torch.Tensor) -> torch.Tensor:
    """Autograd through the whole model on the whole batch at once."""
    model.requires_grad_(requires_grad=True)
    logits = model(input_ids=given, use_cache=False).logits
    functional.cross_entropy(logits[:, :-1].flatten(0, 1), given[:, 1:].flatten()).backward()
    sums = []
    for layer in layers_of(model, family):
        matrices = [p for p in layer.parameters() if p.dim() > 1 and p.grad is not None]
        sums.append(sum(float((p.detach() * p.grad).abs().double().sum()) for p in matrices))
    return torch.tensor(sums, dtype=torch.float64)


@pytest.mark.parametrize("name", MODELS)
def test_importance_is_that_of_plain_autograd(name: str) -> None:
    """Layer by layer or through the whole model at once: the same sums of |W dL/dW|."""
    make, family = MODELS[name]
    assert_close(importance(make(), family, tokens()), direct(make(), family, tokens()), rtol=1e-4, atol=1e-7)


def test_batching_does_not_matter() -> None:
    """Gradients are added up with their sign: absolute values per batch would give more."""
    given = tokens()
    whole = importance(tiny_llama(), LLAMA, given)
    parts = importance(tiny_llama(), LLAMA, given[:1], given[1:])
    assert_close(parts, whole, rtol=1e-4, atol=0)
    apart = sum(importance(tiny_llama(), LLAMA, window) for window in given.split(1)) / len(given)
    assert bool((apart > 1.05 * whole).all())


def test_half_precision_weights_are_computed_with_in_float32() -> None:
    """A bfloat16 model scores as the float32 model with the same (rounded) weights."""
    model = tiny_llama().bfloat16()
    assert_close(
        importance(model, LLAMA, tokens()),
        importance(tiny_llama().bfloat16().float(), LLAMA, tokens()),
        rtol=1e-6,
        atol=0,
    )
    assert model.dtype is torch.bfloat16


def test_the_model_is_left_as_it_was() -> None:
    """Logits bit by bit, no hooks, no gradients, each weight's requires_grad and storage as before."""
    model = tiny_llama()
    model.model.layers[1].mlp.up_proj.weight.requires_grad_()
    flags = {name: (p.requires_grad, p.data_ptr()) for name, p in model.named_parameters()}
    before = model(tokens()).logits.detach()
    importance(model, LLAMA, tokens())
    assert torch.equal(model(tokens()).logits.detach(), before)
    assert {name: (p.requires_grad, p.data_ptr()) for name, p in model.named_parameters()} == flags
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_one_layer_has_gradients_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a layer is scored, its matrices are the only ones in the process that hold gradients."""
    held: list[int] = []
    score = gradients._score

    def watch(index: int, matrices: dict[str, torch.Tensor]) -> float:
        everything = [item for item in gc.get_objects() if type(item) is torch.Tensor and item.is_leaf]
        held.append(sum(item.dim() == 2 and item.grad is not None for item in everything))
        return score(index, matrices)

    monkeypatch.setattr(gradients, "_score", watch)
    importance(tiny_llama(), LLAMA, tokens())
    assert held == [7] * 6  # q, k, v, o, gate, up, down


def test_broken_gradients_are_noticed() -> None:
    """A typed error, not a wrong choice of layers."""
    model = tiny_llama()
    model.model.layers[2].mlp.up_proj.weight.data[0, 0] = float("inf")
    with pytest.raises(NonFiniteError):
        importance(model, LLAMA, tokens())


def test_magnitude_is_the_sum_of_absolute_weights() -> None:
    """Of matrices alone: norms and biases are no weights."""
    layer = tiny_llama().model.layers[3]
    linear = [module.weight for module in layer.modules() if isinstance(module, torch.nn.Linear)]
    assert_close(weight_magnitude(layer), float(sum(w.double().abs().sum() for w in linear)))
