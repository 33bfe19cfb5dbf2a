import torch

from ghosted_core.evaluate.perplexity import perplexity
from ghosted_core.evaluate.without import LossesWithoutLayers
from ghosted_core.model.families import family_of
from ghosted_core.model.skipping import LayerSkipper
from ghosted_core.testing import tiny_llama
from tests.unlike_llama import FALCON, tiny_falcon

LLAMA = family_of("llama")


def test_sharing_the_layers_before_changes_no_bit(generator: torch.Generator) -> None:
    """Every candidate's loss is that of a run of its own, with other layers away already."""
    model = tiny_llama()
    tokens = torch.randint(3, 320, (3, 40), generator=generator)
    found = LossesWithoutLayers(model, LLAMA)([2], [5, 0, 1, 3], tokens.split(2), lambda _: None)
    for layer, loss in found.items():
        with LayerSkipper(model, LLAMA).without([2, layer]):
            assert loss == perplexity(model, tokens.split(2)).nll


def test_layers_that_answer_in_tuples_share_too(generator: torch.Generator) -> None:
    """Falcon's layers do."""
    model = tiny_falcon()
    tokens = torch.randint(3, 320, (2, 40), generator=generator)
    found = LossesWithoutLayers(model, FALCON)([], range(4), [tokens], lambda _: None)
    for layer, loss in found.items():
        with LayerSkipper(model, FALCON).without([layer]):
            assert loss == perplexity(model, [tokens]).nll


def test_each_layer_before_a_candidate_runs_once(generator: torch.Generator) -> None:
    """L candidates cost L (L - 1) / 2 runs of a layer after them, and one run of each before the last."""
    model, runs = tiny_llama(), []
    for layer in model.model.layers:
        layer.input_layernorm.register_forward_hook(lambda *_: runs.append(1))
    tokens = torch.randint(3, 320, (1, 20), generator=generator)
    layers, without = len(model.model.layers), LossesWithoutLayers(model, LLAMA)
    # The first use looks, once, at what kind of answer layers give.
    without([], [0], [tokens], lambda _: None)
    runs.clear()
    without([], range(layers), [tokens], lambda _: None)
    assert len(runs) == layers * (layers - 1) // 2 + layers - 1
