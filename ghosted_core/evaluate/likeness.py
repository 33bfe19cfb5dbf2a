"""Perplexity of several models, and how like the dense one they are, from the same logits."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.batching import CHUNK_POSITIONS
from ghosted_core.evaluate.mean import Mean
from ghosted_core.evaluate.perplexity import Perplexity, losses_of, predicted_tokens, summary
from ghosted_core.evaluate.side_by_side import SideBySide

DENSE = "dense"


@dataclass(frozen=True)
class Likeness:
    """How a model's next-token distributions compare with the dense model's, position by position.

    `divergence` is KL(dense || model) in nats a token, `agreement` the share of positions where both
    find the same token the likeliest.
    """

    divergence: Mean
    agreement: Mean


@dataclass(frozen=True)
class Found:
    """What was measured of one model; of the dense one no likeness."""

    perplexity: Perplexity
    likeness: Likeness | None


@dataclass
class _Windows:
    """One figure a window."""

    losses: list[float] = field(default_factory=list)
    divergences: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)

    def found(self, predicted: int) -> Found:
        likeness = None
        if self.divergences:
            likeness = Likeness(Mean.of(self.divergences), Mean.of(self.agreements))
        return Found(summary(self.losses, predicted), likeness)


def likenesses(
    dense: PreTrainedModel,
    others: Mapping[str, PreTrainedModel],
    batches: Iterable[Int64[Tensor, "_windows tokens"]],
    advance: Callable[[int], None],
) -> dict[str, Found]:
    """Perplexity of `dense`, under DENSE, and of `others`, which were made of it, with their likeness.

    The logits of a batch of the dense model and of one other are held at a time. `advance` is told of
    tokens: all windows for every model.
    """
    side_by_side = SideBySide(dense, {DENSE: dense, **others})
    windows = {name: _Windows() for name in (DENSE, *others)}
    predicted = 0
    for batch in batches:
        reference: Tensor | None = None
        for name, logits in side_by_side.logits(batch):
            windows[name].losses += losses_of(logits, batch)
            if reference is None:
                # The dense model comes first.
                reference = logits
            else:
                _compare(reference, logits, windows[name])
            del logits  # Else they would still be there while the next ones are made.
            advance(batch.numel())
        predicted += predicted_tokens(batch)
    return {name: found.found(predicted) for name, found in windows.items()}


def _compare(
    dense: Float[Tensor, "windows tokens vocabulary"],
    other: Float[Tensor, "windows tokens vocabulary"],
    windows: _Windows,
) -> None:
    for first, second in zip(dense, other, strict=True):
        divergence, agreement = _window_likeness(first[:-1], second[:-1])
        windows.divergences.append(divergence)
        windows.agreements.append(agreement)


def _window_likeness(
    dense: Float[Tensor, "tokens vocabulary"], other: Float[Tensor, "tokens vocabulary"]
) -> tuple[float, float]:
    """Mean KL(dense || other) and share of equal first choices, over the positions of one window."""
    divergence, equal = 0.0, 0
    for first, second in zip(_chunks(dense), _chunks(other), strict=True):
        expected, found = first.float().log_softmax(-1), second.float().log_softmax(-1)
        probabilities = expected.exp()
        # Tokens that a model rules out: 0 ln 0 = 0.
        terms = (probabilities * (expected - found)).masked_fill(probabilities == 0, 0.0)
        divergence += float(terms.sum())
        equal += int((first.argmax(-1) == second.argmax(-1)).sum())
    return divergence / len(dense), equal / len(dense)


def _chunks(logits: Tensor) -> tuple[Tensor, ...]:
    return torch.split(logits, CHUNK_POSITIONS)
