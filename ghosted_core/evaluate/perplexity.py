"""Perplexity over non-overlapping windows."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from ghosted_core.batching import CHUNK_POSITIONS
from ghosted_core.evaluate.mean import Mean
from ghosted_core.evaluate.side_by_side import SideBySide


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood of the predicted tokens, in nats.

    `standard_error` is that of the mean NLL, over windows; infinity or not-a-number of a broken
    model is passed on as it is. `losses` has the mean NLL of each window.
    """

    value: float
    nll: float
    standard_error: float
    windows: int
    predicted_tokens: int
    losses: tuple[float, ...] = ()


def perplexity(model: PreTrainedModel, batches: Iterable[Int64[Tensor, "_windows tokens"]]) -> Perplexity:
    """Perplexity of `model`: each window starts without context and predicts all tokens but its first."""
    losses: list[float] = []
    predicted = 0
    for batch in batches:
        losses += window_losses(model, batch)
        predicted += predicted_tokens(batch)
    return summary(losses, predicted)


def perplexities(
    dense: PreTrainedModel,
    models: Mapping[str, PreTrainedModel],
    batches: Iterable[Int64[Tensor, "_windows tokens"]],
    advance: Callable[[int], None],
) -> dict[str, Perplexity]:
    """The perplexity of each of `models`, which were made of `dense`; `dense` may be one of them.

    The layers that a model shares with `dense` up to its first difference run once for all, and the
    results are those of `perplexity`, bit by bit. `advance` is told of tokens: all windows for every model.
    """
    side_by_side = SideBySide(dense, models)
    losses: dict[str, list[float]] = {name: [] for name in models}
    predicted = 0
    for batch in batches:
        for name, logits in side_by_side.logits(batch):
            losses[name] += losses_of(logits, batch)
            del logits  # Else they would still be there while the next ones are made.
            advance(batch.numel())
        predicted += predicted_tokens(batch)
    return {name: summary(found, predicted) for name, found in losses.items()}


@torch.no_grad()
def window_losses(model: PreTrainedModel, batch: Int64[Tensor, "_windows tokens"]) -> list[float]:
    """The mean NLL of each window, in nats a predicted token."""
    return losses_of(model(input_ids=batch.to(model.device), use_cache=False).logits, batch)


def losses_of(
    logits: Float[Tensor, "windows tokens vocabulary"], batch: Int64[Tensor, "windows tokens"]
) -> list[float]:
    """The mean NLL of each window, from the logits of its tokens."""
    return [_window_nll(row, window) for row, window in zip(logits, batch.to(logits.device), strict=True)]


def predicted_tokens(batch: Int64[Tensor, "_windows tokens"]) -> int:
    """How many tokens of `batch` are predicted: all but the first of each window."""
    windows, length = batch.shape
    return windows * (length - 1)


def _window_nll(logits: Tensor, tokens: Tensor) -> float:
    """Mean NLL of one window in nats."""
    total = 0.0
    predictions, targets = logits[:-1], tokens[1:]
    for start in range(0, len(targets), CHUNK_POSITIONS):
        part = slice(start, start + CHUNK_POSITIONS)
        total += float(functional.cross_entropy(predictions[part].float(), targets[part], reduction="sum"))
    return total / len(targets)


def summary(window_losses: Sequence[float], predicted: int) -> Perplexity:
    """The perplexity of all windows together, out of the mean NLL of each."""
    nll = Mean.of(window_losses)
    return Perplexity(
        value=_exp(nll.value),
        nll=nll.value,
        standard_error=nll.standard_error,
        windows=len(window_losses),
        predicted_tokens=predicted,
        losses=tuple(window_losses),
    )


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
