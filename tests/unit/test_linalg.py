import pytest
import torch
from hypothesis import given, settings, strategies
from torch.testing import assert_close

from ghosted_core import linalg
from ghosted_core.errors import NonFiniteError


def matrix_with_spectrum(spectrum: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = len(spectrum)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return basis @ torch.diag(spectrum) @ basis.mT


@given(strategies.integers(0, 1000), strategies.floats(0, 10))
@settings(max_examples=20, deadline=None)
def test_well_conditioned_systems_are_solved_exactly(seed: int, exponent: float) -> None:
    """Up to condition 1e10 the residual of the solve is at rounding level, and the condition is found."""
    spectrum = torch.logspace(0, -exponent, 12, dtype=torch.float64)
    gram = matrix_with_spectrum(spectrum, seed)
    cross = torch.randn(12, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = linalg.ridge_solve(gram, cross, ridge=0.0)
    assert_close(gram @ found.solution, cross, rtol=0, atol=1e-4)
    assert found.condition == pytest.approx(10**exponent, rel=1e-3)
    assert found.method == "cholesky"


def test_the_truncation_drops_small_singular_values_of_x() -> None:
    """Eigenvalues of X'X below the square of the cut-off are left out."""
    spectrum = torch.tensor([1.0, 1e-4, 1e-11, 1e-13], dtype=torch.float64)
    gram = matrix_with_spectrum(spectrum, seed=3)
    found = linalg.truncated_solve(gram, gram)
    assert found.rank == 3
    assert found.condition == pytest.approx(1e11, rel=1e-2)


def test_not_a_number_is_noticed() -> None:
    """LAPACK would pass it on in silence."""
    gram = torch.eye(3, dtype=torch.float64)
    gram[1, 1] = float("nan")
    with pytest.raises(NonFiniteError):
        linalg.ridge_solve(gram, gram, ridge=0.0)


def test_shares_of_nothing_are_zero() -> None:
    """M = 0 has no direction."""
    assert linalg.symmetric_shares(torch.zeros(4, 4, dtype=torch.float64)) == (0.0, 0.0)
