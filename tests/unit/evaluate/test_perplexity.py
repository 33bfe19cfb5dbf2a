import math
from statistics import stdev

import pytest
import torch

from ghosted_core.evaluate.perplexity import perplexities, perplexity
from ghosted_core.model.families import family_of
from ghosted_core.model.sharing import shared_depth
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.testing import tiny_llama, tiny_model


def windows(generator: torch.Generator, *, count: int = 5, length: int = 300) -> torch.Tensor:
    return torch.randint(3, 320, (count, length), generator=generator)


@torch.no_grad()
def test_it_is_the_mean_loss_of_transformers(generator: torch.Generator) -> None:
    """Each window's NLL is the loss that the model itself reports for it."""
    model, tokens = tiny_llama(), windows(generator, length=200)
    losses = [float(model(row[None], labels=row[None]).loss) for row in tokens]
    found = perplexity(model, tokens.split(2))
    assert found.nll == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found.value == pytest.approx(math.exp(found.nll))
    assert (found.windows, found.predicted_tokens) == (5, 5 * 199)


def test_batching_does_not_matter(generator: torch.Generator) -> None:
    """One window at a time or all at once."""
    model, tokens = tiny_llama(), windows(generator)
    assert perplexity(model, tokens.split(1)).nll == pytest.approx(perplexity(model, [tokens]).nll, rel=1e-6)


def test_the_standard_error_is_over_windows(generator: torch.Generator) -> None:
    """That of a mean of as many figures; equal windows have none, of a single one it is not known."""
    model, several = tiny_llama(), windows(generator, count=3, length=50)
    each = [perplexity(model, [window]).nll for window in several.split(1)]
    assert perplexity(model, [several]).standard_error == pytest.approx(stdev(each) / 3**0.5, rel=1e-4)
    tokens = several[:1]
    assert perplexity(model, [tokens.repeat(3, 1)]).standard_error == pytest.approx(0, abs=1e-6)
    assert math.isnan(perplexity(model, [tokens]).standard_error)


def test_a_broken_model_is_not_a_crash(generator: torch.Generator) -> None:
    """Not-a-number comes out as such, for the caller to report."""
    model = tiny_llama()
    model.lm_head.weight.fill_(float("nan"))
    assert math.isnan(perplexity(model, [windows(generator, count=2, length=20)]).value)


REMOVED = ((2, 3), (0, 4), (4, 5))


def variants(model_type: str, removed: tuple[int, ...]) -> dict[str, torch.nn.Module]:
    """A dense model, the same without layers, and with operators at the cuts too."""
    dense = tiny_model(model_type)
    plan = PruningPlan.from_removed(removed, layer_count=dense.config.num_hidden_layers)
    width = dense.config.hidden_size
    corrections = {boundary: torch.eye(width, dtype=torch.float64) / 4 for boundary in plan.boundaries}
    repaired = repaired_model(dense, plan, corrections)
    return {"dense": dense, "pruned": pruned_model(dense, plan), "repaired": repaired}


@pytest.mark.parametrize("removed", REMOVED)
@pytest.mark.parametrize("model_type", ["llama", "gemma2", "gpt2", "falcon"])
def test_sharing_layers_changes_no_bit(
    model_type: str, removed: tuple[int, ...], generator: torch.Generator
) -> None:
    """What is found of all models together is what is found of each alone."""
    models, tokens = variants(model_type, removed), windows(generator, count=3, length=40)
    told: list[int] = []
    found = perplexities(models["dense"], models, tokens.split(2), told.append)
    assert found == {name: perplexity(model, tokens.split(2)) for name, model in models.items()}
    assert sum(told) == 3 * tokens.numel()


def test_models_share_what_was_not_changed() -> None:
    """Layers up to the first cut or changed weight; nothing if the embeddings differ."""
    dense, family = tiny_llama(), family_of("llama")
    plan = PruningPlan.from_removed([3, 4], layer_count=6)
    weight = "model.layers.2.mlp.down_proj.weight"
    folded = pruned_model(dense, plan, {weight: dense.get_parameter(weight) * 2})
    embedded = pruned_model(dense, plan, {"model.embed_tokens.weight": dense.model.embed_tokens.weight * 2})
    operator = {Boundary(3, 5): torch.eye(dense.config.hidden_size, dtype=torch.float64)}
    made = {"same": dense, "pruned": pruned_model(dense, plan), "folded": folded, "embedded": embedded}
    made["repaired"] = repaired_model(dense, plan, operator)
    depths = {name: shared_depth(dense, model, family) for name, model in made.items()}
    assert depths == {"same": 6, "pruned": 3, "repaired": 3, "folded": 2, "embedded": 0}
