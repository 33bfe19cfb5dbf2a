from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from ghosted_core.errors import NonFiniteError
from ghosted_core.recovery.ghosted import CROSS, GRAM, GhostedSolver
from ghosted_core.statistics import (
    ENTERING,
    LEAVING,
    MLP,
    MLP_TARGET,
    SHIFT,
    BoundaryStatistics,
    Feature,
    StatisticsRequest,
)
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


RATIOS = (LEAVING, ENTERING)
WINDOWED = StatisticsRequest(
    energies=(SHIFT, MLP_TARGET), diagonals=((ENTERING, SHIFT),), ratios=(RATIOS, (LEAVING, MLP))
)


def windowed(generator: torch.Generator) -> dict[Feature, torch.Tensor]:
    """Six windows of ten tokens."""
    return {feature: torch.randn(6, 10, 8, generator=generator, dtype=torch.float64) for feature in Feature}


def test_ratios_are_means_over_windows_whatever_the_batching(generator: torch.Generator) -> None:
    """Windows one at a time, merged, equal all at once; so do diagonals and energies of combinations."""
    features = windowed(generator)
    whole, merged = BoundaryStatistics(WINDOWED), BoundaryStatistics(WINDOWED)
    whole.update(features)
    for index in range(6):
        one = BoundaryStatistics(WINDOWED)
        one.update({name: value[index] for name, value in features.items()})
        merged = merged.merge(one)
    assert (merged.windows, merged.tokens) == (whole.windows, whole.tokens) == (6, 60)
    for pair in WINDOWED.ratios:
        assert_close(merged.ratios[pair], whole.ratios[pair], rtol=1e-12, atol=1e-12)
    above, below = (features[f].abs().mean(dim=1) for f in (Feature.LEAVING, Feature.ENTERING))
    assert_close(whole.ratios[RATIOS], (above / below).sum(dim=0), rtol=1e-12, atol=1e-12)
    shift = features[Feature.LEAVING] - features[Feature.ENTERING]
    diagonal = (features[Feature.ENTERING] * shift).sum(dim=(0, 1))
    assert_close(whole.diagonals[ENTERING, SHIFT], diagonal, rtol=1e-12, atol=1e-12)
    target = (shift + features[Feature.MLP]).square()
    assert merged.energies[MLP_TARGET] == pytest.approx(float(target.sum()), rel=1e-12)
    opening = float(target[:, 0].sum() / target.sum())
    for sums in (merged, whole):
        assert sums.opening_share(MLP_TARGET) == pytest.approx(opening, rel=1e-12)
    assert BoundaryStatistics(WINDOWED).opening_share(MLP_TARGET) is None


def test_tokens_without_weight_do_not_enter_ratios(generator: torch.Generator) -> None:
    """skip_first holds for magnitudes too."""
    features = windowed(generator)
    weights = torch.ones(6, 10)
    weights[:, 0] = 0
    weighted, shorter = BoundaryStatistics(WINDOWED), BoundaryStatistics(WINDOWED)
    weighted.update(features, weights)
    shorter.update({name: value[:, 1:] for name, value in features.items()})
    assert_close(weighted.ratios[RATIOS], shorter.ratios[RATIOS], rtol=1e-12, atol=1e-12)
    assert weighted.tokens == shorter.tokens


def test_a_united_request_serves_both_repairs(generator: torch.Generator) -> None:
    """Sums of a union are the sums of its parts."""
    features, united = windowed(generator), WINDOWED | REQUEST
    one, other, both = (BoundaryStatistics(request) for request in (WINDOWED, REQUEST, united))
    for sums in (one, other, both):
        sums.update(features)
    assert_close(both.products[CROSS], other.products[CROSS], rtol=0, atol=0)
    assert_close(both.ratios[RATIOS], one.ratios[RATIOS], rtol=0, atol=0)
    assert united.features == frozenset(Feature)
    assert united.energies == (SHIFT, MLP_TARGET)


def test_statistics_of_different_requests_do_not_merge() -> None:
    """Half a sum is no sum."""
    with pytest.raises(ValueError, match="different requests"):
        BoundaryStatistics(REQUEST).merge(BoundaryStatistics(WINDOWED))


def test_float32_products_are_near_and_say_how_near() -> None:
    """The fast path differs by float32 rounding; the error is measured, and merging keeps the larger."""
    planted = PlantedBoundary.make(tokens=3000, noise=0.1)
    exact = planted.statistics(REQUEST, batches=4)
    fast = planted.statistics(replace(REQUEST, precision="float32"), batches=4)
    off = float((fast.products[GRAM] - exact.products[GRAM]).norm() / exact.products[GRAM].norm())
    assert fast.products[GRAM].dtype == torch.float64
    assert 0 < off < 1e-6
    assert off / 10 < fast.product_error < off * 10
    assert exact.product_error == 0
    assert fast.merge(BoundaryStatistics(fast.request)).product_error == fast.product_error
