"""Cosines between the hidden states of every pair of layer inputs, summed over tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional

from ghosted_core.errors import NonFiniteError

# Tokens whose cosines are worked out at once; bounds memory to this x (layers + 1) x hidden floats.
CHUNK_TOKENS = 512


@dataclass
class LayerSimilarity:
    """Sums of cos(x_i, x_j) over tokens for all pairs of the states x_0 .. x_L.

    One pass over the text serves every criterion that compares hidden states and every number of
    layers to remove. Products are float32, totals float64; (L + 1)^2 numbers whatever the number
    of tokens.
    """

    cosines: Float64[Tensor, "states states"]
    tokens: int = 0

    @classmethod
    def empty(cls, layer_count: int) -> "LayerSimilarity":
        """No tokens seen yet, for a model of `layer_count` layers."""
        return cls(cosines=torch.zeros(layer_count + 1, layer_count + 1, dtype=torch.float64))

    def update(self, states: Sequence[Float[Tensor, "windows tokens hidden"]]) -> None:
        """Add a batch: `states[l]` is the input of layer l, the last one the output of the last layer.

        Raises:
            NonFiniteError: a hidden state is infinite or not a number.
        """
        rows = [state.flatten(0, -2) for state in states]
        total = rows[0].shape[0]
        for start in range(0, total, CHUNK_TOKENS):
            chunk = torch.stack([row[start : start + CHUNK_TOKENS].float() for row in rows], dim=1)
            unit = functional.normalize(chunk, dim=-1)
            self.cosines += (unit @ unit.mT).sum(dim=0, dtype=torch.float64).cpu()
        self.tokens += total
        if not bool(torch.isfinite(self.cosines).all()):
            raise NonFiniteError("The hidden states of the unpruned model are not all finite.")

    def merge(self, other: "LayerSimilarity") -> "LayerSimilarity":
        """The similarity over both sets of tokens together."""
        return type(self)(self.cosines + other.cosines, self.tokens + other.tokens)

    def mean(self) -> Float64[Tensor, "states states"]:
        """Mean cosine of each pair of states over the tokens seen."""
        return self.cosines / self.tokens
