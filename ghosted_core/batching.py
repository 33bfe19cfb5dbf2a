"""Windows of tokens in the groups in which a model reads them."""

from collections.abc import Iterator

from torch import Tensor

from ghosted_core.data import Windows

# Tokens in one forward pass: enough to fill the arithmetic units, little enough to bound memory.
BATCH_TOKENS = 2048


def batches(windows: Windows) -> Iterator[Tensor]:
    """The windows in groups of about `BATCH_TOKENS` tokens."""
    count, length = windows.tokens.shape
    size = max(1, BATCH_TOKENS // length)
    for start in range(0, count, size):
        yield windows.tokens[start : start + size]
