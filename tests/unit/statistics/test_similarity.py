import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from ghosted_core.errors import NonFiniteError
from ghosted_core.statistics import LayerSimilarity


def states(generator: torch.Generator, *, windows: int = 3, tokens: int = 700) -> list[torch.Tensor]:
    return [torch.randn(windows, tokens, 16, generator=generator) for _ in range(5)]


def test_means_equal_the_direct_cosines(generator: torch.Generator) -> None:
    """Each pair's mean is that of torch's own cosine over all tokens, chunks or not."""
    given = states(generator)
    similarity = LayerSimilarity.empty(4)
    similarity.update(given)
    for i, left in enumerate(given):
        for j, right in enumerate(given):
            direct = functional.cosine_similarity(left.double(), right.double(), dim=-1).mean()
            assert_close(similarity.mean()[i, j], direct, rtol=0, atol=1e-6)


def test_batching_does_not_matter(generator: torch.Generator) -> None:
    """Window by window or all at once, and merged from parts: the same sums."""
    given = states(generator)
    whole, parts = LayerSimilarity.empty(4), [LayerSimilarity.empty(4) for _ in range(3)]
    whole.update(given)
    for index, part in enumerate(parts):
        part.update([state[index : index + 1] for state in given])
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert merged.tokens == whole.tokens
    assert_close(merged.cosines, whole.cosines, rtol=0, atol=1e-3)


def test_broken_states_are_noticed(generator: torch.Generator) -> None:
    """A model that overflows is a typed error, not a wrong choice of layers."""
    given = states(generator)
    given[2][0, 0, 0] = float("inf")
    with pytest.raises(NonFiniteError):
        LayerSimilarity.empty(4).update(given)
