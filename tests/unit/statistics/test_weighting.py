import pytest
import torch

from ghosted_core.statistics import token_weights


def test_uniform_needs_no_weights(generator: torch.Generator) -> None:
    """None stands for one each."""
    assert token_weights("uniform", torch.randn(2, 3, 4, generator=generator)) is None


def test_skip_first_leaves_out_one_token_a_window(generator: torch.Generator) -> None:
    """The attention sink does not take part."""
    weights = token_weights("skip_first", torch.randn(2, 3, 4, generator=generator))
    assert weights is not None
    assert weights.tolist() == [[0, 1, 1], [0, 1, 1]]


def test_inverse_norm_makes_all_weighted_norms_equal(generator: torch.Generator) -> None:
    """w ||x||^2 is 1 for every token, also for huge ones; a zero token stays finite."""
    entering = torch.randn(2, 3, 4, generator=generator) * torch.tensor([1.0, 1e3, 1e-3])[None, :, None]
    weights = token_weights("inverse_norm", entering)
    assert weights is not None
    assert torch.allclose(weights * entering.square().sum(-1), torch.ones(2, 3))
    zero = token_weights("inverse_norm", torch.zeros(1, 1, 4))
    assert zero is not None
    assert bool(torch.isfinite(zero).all())


def test_unknown_names_are_refused() -> None:
    """A misspelt weighting never passes for uniform."""
    with pytest.raises(ValueError, match="sideways"):
        token_weights("sideways", torch.zeros(1, 1, 4))
