import math

import pytest
import torch

from ghosted_core.evaluate.perplexity import perplexity
from ghosted_core.testing import tiny_llama


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
    """Equal windows have none; a single one has no known error."""
    model, tokens = tiny_llama(), windows(generator, count=1, length=50)
    assert perplexity(model, [tokens.repeat(3, 1)]).standard_error == pytest.approx(0, abs=1e-6)
    assert math.isnan(perplexity(model, [tokens]).standard_error)


def test_a_broken_model_is_not_a_crash(generator: torch.Generator) -> None:
    """Not-a-number comes out as such, for the caller to report."""
    model = tiny_llama()
    model.lm_head.weight.fill_(float("nan"))
    assert math.isnan(perplexity(model, [windows(generator, count=2, length=20)]).value)
