import pytest
import torch
from safetensors.torch import load, save
from torch.nn import functional
from torch.testing import assert_close

from ghosted_core.errors import NonFiniteError
from ghosted_core.statistics import LayerSimilarity

LAYERS = 4


def states(generator: torch.Generator, *, windows: int = 3, tokens: int = 700) -> list[torch.Tensor]:
    """States with a drift in common, so that cosines are not all near 0."""
    common = torch.randn(windows, tokens, 16, generator=generator)
    return [common + torch.randn(windows, tokens, 16, generator=generator) for _ in range(LAYERS + 1)]


def seen(given: list[torch.Tensor], mask: torch.Tensor | None = None) -> LayerSimilarity:
    similarity = LayerSimilarity.empty(LAYERS)
    similarity.update(given, mask)
    return similarity


def assert_same(one: LayerSimilarity, other: LayerSimilarity) -> None:
    assert (one.tokens, one.sequences) == (other.tokens, other.sequences)
    for left, right in zip(one.sums(), other.sums(), strict=True):
        assert_close(left, right, rtol=1e-9, atol=1e-9)


def pairs(given: list[torch.Tensor]) -> list[tuple[int, int, torch.Tensor, torch.Tensor]]:
    wide = [state.double() for state in given]
    return [(i, j, left, right) for i, left in enumerate(wide) for j, right in enumerate(wide)]


def test_token_means_equal_the_direct_cosines(generator: torch.Generator) -> None:
    """Each pair's mean is that of torch's own cosine over all tokens, chunks or not."""
    given = states(generator)
    mean = seen(given).token_mean()
    for i, j, left, right in pairs(given):
        direct = functional.cosine_similarity(left, right, dim=-1).mean()
        assert_close(mean[i, j], direct, rtol=0, atol=1e-6)


def test_channel_means_equal_the_direct_cosines_along_the_sequence(generator: torch.Generator) -> None:
    """Each pair's mean is that of torch's own cosine along the sequence axis, over channels and windows."""
    given = states(generator)
    mean = seen(given).channel_mean()
    for i, j, left, right in pairs(given):
        direct = functional.cosine_similarity(left, right, dim=1).mean()
        assert_close(mean[i, j], direct, rtol=0, atol=1e-6)


def test_angles_are_those_of_the_last_tokens(generator: torch.Generator) -> None:
    """Over pi, mean over windows; that of a state and itself is 0 within what arccos near 1 allows."""
    given = states(generator)
    mean = seen(given).angle_mean()
    for i, j, left, right in pairs(given):
        cosine = functional.cosine_similarity(left[:, -1], right[:, -1], dim=-1).clamp(-1, 1)
        assert_close(mean[i, j], (torch.arccos(cosine) / torch.pi).mean(), rtol=0, atol=1e-7)


def test_nearly_equal_states_have_no_angle_beyond_arccos(generator: torch.Generator) -> None:
    """Rounding never makes a cosine above 1 into not-a-number."""
    state = torch.randn(2, 5, 16, generator=generator)
    assert bool(torch.isfinite(seen([state * (1 + 1e-7 * k) for k in range(LAYERS + 1)]).angles).all())


def test_a_silent_channel_counts_as_cosine_0(generator: torch.Generator) -> None:
    """As torch has it: a channel of zeros neither divides by zero nor drops out of the mean."""
    given = states(generator)
    given[1][:, :, 3] = 0
    direct = functional.cosine_similarity(given[1].double(), given[2].double(), dim=1).mean()
    assert_close(seen(given).channel_mean()[1, 2], direct, rtol=0, atol=1e-6)


def test_batching_does_not_matter(generator: torch.Generator) -> None:
    """Window by window or all at once, and merged from parts: the same sums."""
    given = states(generator)
    parts = [seen([state[index : index + 1] for state in given]) for index in range(3)]
    assert_same(parts[0].merge(parts[1]).merge(parts[2]), seen(given))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_counts_for_nothing(generator: torch.Generator, side: str) -> None:
    """Padded windows give the sums of the same windows without padding, whatever stands in the pads."""
    given = states(generator, tokens=40)
    lengths = (40, 17, 0)
    mask = torch.zeros(3, 40, dtype=torch.bool)
    expected = LayerSimilarity.empty(LAYERS)
    for window, length in enumerate(lengths):
        real = slice(0, length) if side == "right" else slice(40 - length, 40)
        mask[window, real] = True
        if length:
            expected.update([state[window : window + 1, real] for state in given])
    padded = [torch.where(mask[..., None], state, torch.nan) for state in given]
    assert_same(seen(padded, mask), expected)
    assert expected.sequences == 2


def test_size_does_not_depend_on_the_text(generator: torch.Generator) -> None:
    """Three matrices of (L + 1)^2 numbers after 10 tokens and after 2,000."""
    sizes = {
        sum(tensor.numel() for tensor in seen(states(generator, windows=w, tokens=t)).to_tensors().values())
        for w, t in ((1, 10), (4, 500))
    }
    assert sizes == {3 * (LAYERS + 1) ** 2 + 2}


def test_it_survives_a_file(generator: torch.Generator) -> None:
    """Written as safetensors and read back, it is the same to the bit."""
    one = seen(states(generator, tokens=20))
    again = LayerSimilarity.from_tensors(load(save(one.to_tensors())))
    assert (again.tokens, again.sequences) == (one.tokens, one.sequences)
    assert all(torch.equal(left, right) for left, right in zip(one.sums(), again.sums(), strict=True))


def test_broken_states_are_noticed(generator: torch.Generator) -> None:
    """A model that overflows is a typed error, not a wrong choice of layers."""
    given = states(generator)
    given[2][0, 0, 0] = float("inf")
    with pytest.raises(NonFiniteError):
        seen(given)
