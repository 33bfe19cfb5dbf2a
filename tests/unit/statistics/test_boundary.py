import pytest
import torch
from torch.testing import assert_close

from ghosted_core.errors import NonFiniteError
from ghosted_core.recovery.ghosted import CROSS, GRAM, GhostedSolver
from ghosted_core.statistics import SHIFT, BoundaryStatistics, Feature
from ghosted_core.testing import PlantedBoundary

REQUEST = GhostedSolver.request


@pytest.mark.parametrize("batches", [1, 7, 64])
def test_batching_does_not_matter(batches: int) -> None:
    """Sums over any batching equal the sums over all tokens at once."""
    planted = PlantedBoundary.make(noise=0.1)
    one, many = planted.statistics(REQUEST), planted.statistics(REQUEST, batches=batches)
    for pair in (GRAM, CROSS):
        assert_close(many.products[pair], one.products[pair], rtol=1e-12, atol=1e-12)
    assert many.energies[SHIFT] == pytest.approx(one.energies[SHIFT], rel=1e-12)
    assert many.tokens == one.tokens == 512


def test_merging_halves_equals_the_whole() -> None:
    """Two workers with half the text each find what one finds with all of it."""
    planted = PlantedBoundary.make(noise=0.1)
    half = 200
    parts = [
        PlantedBoundary(planted.entering[part], planted.leaving[part], planted.correction).statistics(REQUEST)
        for part in (slice(None, half), slice(half, None))
    ]
    merged, whole = parts[0].merge(parts[1]), planted.statistics(REQUEST)
    for pair in (GRAM, CROSS):
        assert_close(merged.products[pair], whole.products[pair], rtol=1e-12, atol=1e-12)
    assert merged.energies[SHIFT] == pytest.approx(whole.energies[SHIFT], rel=1e-12)
    assert merged.tokens == whole.tokens


def test_merging_with_nothing_changes_nothing() -> None:
    """Empty statistics are the neutral element."""
    whole = PlantedBoundary.make().statistics(REQUEST)
    merged = BoundaryStatistics(REQUEST).merge(whole)
    assert_close(merged.products[GRAM], whole.products[GRAM], rtol=0, atol=0)


def test_whole_weights_repeat_tokens() -> None:
    """A weight of k counts a token k times, and 0 leaves it out."""
    planted = PlantedBoundary.make(tokens=40, noise=0.1)
    counts = torch.arange(40) % 3
    weighted, repeated = BoundaryStatistics(REQUEST), BoundaryStatistics(REQUEST)
    features = {Feature.ENTERING: planted.entering, Feature.LEAVING: planted.leaving}
    weighted.update(features, counts.float())
    repeated.update({name: value.repeat_interleave(counts, dim=0) for name, value in features.items()})
    assert_close(weighted.products[CROSS], repeated.products[CROSS], rtol=1e-12, atol=1e-12)
    assert weighted.energies[SHIFT] == pytest.approx(repeated.energies[SHIFT], rel=1e-12)
    assert weighted.tokens == int((counts > 0).sum())


def test_size_does_not_grow_with_tokens() -> None:
    """Ten times the text, the same number of stored figures."""
    small, large = (PlantedBoundary.make(tokens=n).statistics(REQUEST, batches=8) for n in (160, 1600))
    sizes = [sum(p.numel() for p in s.products.values()) for s in (small, large)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_activations_are_noticed_at_once(value: float) -> None:
    """One infinite or missing number in a batch is a typed error that names the activation."""
    planted = PlantedBoundary.make(tokens=16)
    planted.leaving[3, 5] = value
    with pytest.raises(NonFiniteError, match="shift"):
        planted.statistics(REQUEST)
