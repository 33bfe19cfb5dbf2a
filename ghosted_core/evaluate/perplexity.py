"""Perplexity over non-overlapping windows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

# Positions whose logits are widened to float32 at once; bounds memory to this x vocabulary floats.
CHUNK_POSITIONS = 256


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


@torch.no_grad()
def perplexity(model: PreTrainedModel, batches: Iterable[Int64[Tensor, "_windows tokens"]]) -> Perplexity:
    """Perplexity of `model`: each window starts without context and predicts all tokens but its first."""
    losses: list[float] = []
    predicted = 0
    for batch in batches:
        tokens = batch.to(model.device)
        logits = model(input_ids=tokens, use_cache=False).logits
        losses += [_window_nll(row, window) for row, window in zip(logits, tokens, strict=True)]
        predicted += tokens.shape[0] * (tokens.shape[1] - 1)
    return _summary(torch.tensor(losses, dtype=torch.float64), predicted)


def _window_nll(logits: Tensor, tokens: Tensor) -> float:
    """Mean NLL of one window in nats."""
    total = 0.0
    predictions, targets = logits[:-1], tokens[1:]
    for start in range(0, len(targets), CHUNK_POSITIONS):
        part = slice(start, start + CHUNK_POSITIONS)
        total += float(functional.cross_entropy(predictions[part].float(), targets[part], reduction="sum"))
    return total / len(targets)


def _summary(losses: Tensor, predicted: int) -> Perplexity:
    mean = float(losses.mean())
    spread = float(losses.std(correction=1)) if len(losses) > 1 else math.nan
    return Perplexity(
        value=_exp(mean),
        nll=mean,
        standard_error=spread / math.sqrt(len(losses)),
        windows=len(losses),
        predicted_tokens=predicted,
        losses=tuple(losses.tolist()),
    )


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
