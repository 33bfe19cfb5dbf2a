"""What the operator of a checkpoint costs by itself on this GPU, printed."""

import statistics
import sys
import time
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from ghosted_core.checkpoint.modeling_ghosted import BoundaryOperator

pytestmark = pytest.mark.gpu

ROUNDS, REPEATS = 21, 100
PROMISED = 1.2


def seconds(run: Callable[[], torch.Tensor]) -> float:
    """Of REPEATS runs, once the GPU is done with them."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(REPEATS):
        run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


@torch.no_grad()
@pytest.mark.parametrize("tokens", [1, 512, 8192])
@pytest.mark.parametrize("width", [576, 2048, 4096])
def test_the_operator_against_one_bare_product(
    gpu: torch.device, width: int, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the product itself takes time, x + x M takes at most 1.2 of it."""
    operator = BoundaryOperator(width)
    operator.correction.data = torch.randn(width, width) / width
    operator.to(device=gpu, dtype=torch.bfloat16).lay_out()
    rows = torch.randn(1, tokens, width, device=gpu, dtype=torch.bfloat16)
    bare = torch.randn(width, width, device=gpu, dtype=torch.bfloat16)
    sides = (lambda: operator(rows), lambda: functional.linear(rows, bare))
    found = [tuple(seconds(side) for side in sides) for _ in range(ROUNDS)][1:]
    ratio = statistics.median(a / b for a, b in found)
    product = statistics.median(b for _, b in found) / REPEATS
    with capsys.disabled():
        sys.stdout.write(
            f"\nC {width}, {tokens} tokens: {ratio:.2f} of a bare product of {product * 1e6:.0f} us\n"
        )
    # Smaller ones last as long as it takes to ask for them, twice where two are asked for.
    if width * width * tokens >= 4096 * 4096 * 8192:
        assert ratio <= PROMISED
