import math
import time

import pytest
import torch

from ghosted_core.hadamard import paley_core, rotation

# Widths of published models, and the orders that tables of the field lack.
SMALL = [1, 2, 4, 12, 32, 64, 96, 576, 768, 896, 960, 1024, 1152]
MISSED = {1344: 84, 1600: 200, 2688: 84, 2816: 44, 2880: 180, 4544: 284, 5376: 84}


@pytest.mark.parametrize("order", SMALL)
def test_a_hadamard_matrix_is_orthonormal_with_equal_entries(order: int) -> None:
    """H'H = I, and each entry is plus or minus 1 / sqrt(order)."""
    matrix = rotation(order).matrix
    identity = torch.eye(order, dtype=torch.float64)
    torch.testing.assert_close(matrix.mT @ matrix, identity, rtol=0, atol=1e-12)
    assert bool((matrix.abs() == 1 / math.sqrt(order)).all())


@pytest.mark.parametrize("order", MISSED)
def test_large_orders_are_built_in_bounded_time(order: int) -> None:
    """Seconds; all columns have length one, sampled ones are orthogonal to all, entries are equal."""
    started = time.process_time()
    matrix = rotation(order).matrix
    assert time.process_time() - started < 20
    assert paley_core(order) == MISSED[order]
    sample = torch.arange(0, order, order // 16)
    found = matrix[:, sample].mT @ matrix
    torch.testing.assert_close(found, torch.eye(order, dtype=torch.float64)[sample], rtol=0, atol=1e-12)
    assert bool((matrix.abs() == 1 / math.sqrt(order)).all())


@pytest.mark.parametrize("core", [84, 200, 44, 180, 284])
def test_the_paley_cores_are_hadamard(core: int) -> None:
    """Kronecker products of orthonormal matrices are orthonormal: the cores prove the rest."""
    matrix = rotation(core).matrix
    torch.testing.assert_close(matrix.mT @ matrix, torch.eye(core, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [3, 36, 50, 100, 774])
def test_other_orders_get_an_orthonormal_substitute_that_says_so(order: int) -> None:
    """No silent change of method: the name tells."""
    found = rotation(order)
    assert paley_core(order) is None
    assert "DCT" in found.name
    torch.testing.assert_close(
        found.matrix.mT @ found.matrix, torch.eye(order, dtype=torch.float64), rtol=0, atol=1e-11
    )
