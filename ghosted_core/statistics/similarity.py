"""How alike the states of every pair of layer inputs are, summed over text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor
from torch.nn import functional

from ghosted_core.errors import NonFiniteError

# Tokens worked on at once; bounds memory to this x (layers + 1) x hidden floats.
CHUNK_TOKENS = 512


@dataclass
class LayerSimilarity:
    """Sums over text for all pairs of the states x_0 .. x_L.

    One pass over the text serves every criterion that compares hidden states and every number of
    layers to remove. Products are float32, totals float64; three matrices of (L + 1)^2 numbers,
    whatever the number of tokens. Sums, not means, so that `merge` is addition.

    Attributes:
        token_cosines: sum over tokens of cos(x_i, x_j).
        channel_cosines: sum over sequences of the mean over channels of the cosine of x_i and x_j
            along the sequence.
        angles: sum over sequences of arccos(cos(x_i, x_j)) / pi at the last token.
        tokens: number of tokens seen.
        sequences: number of sequences seen.
    """

    token_cosines: Float64[Tensor, "states states"]
    channel_cosines: Float64[Tensor, "states states"]
    angles: Float64[Tensor, "states states"]
    tokens: int = 0
    sequences: int = 0

    @classmethod
    def empty(cls, layer_count: int) -> "LayerSimilarity":
        """Nothing seen yet, for a model of `layer_count` layers."""
        zeros = torch.zeros(layer_count + 1, layer_count + 1, dtype=torch.float64)
        return cls(zeros.clone(), zeros.clone(), zeros)

    def update(
        self,
        states: Sequence[Float[Tensor, "windows tokens hidden"]],
        mask: Bool[Tensor, "windows tokens"] | None = None,
    ) -> None:
        """Add a batch of whole sequences, one a window.

        `states[l]` is the input of layer l, the last one the output of the last layer. `mask` is
        false at padding, which counts for nothing; a window of padding alone is no sequence.

        Raises:
            NonFiniteError: a hidden state (of a token that is not padding) is not finite.
        """
        for window in range(states[0].shape[0]):
            sequence = [state[window] for state in states]
            if mask is not None:
                real = mask[window].to(sequence[0].device)
                sequence = [state[real] for state in sequence]
            if len(sequence[0]) > 0:
                self._add(sequence)
        if not all(bool(torch.isfinite(sums).all()) for sums in self.sums()):
            raise NonFiniteError("The hidden states of the unpruned model are not all finite.")

    def _add(self, sequence: Sequence[Float[Tensor, "tokens hidden"]]) -> None:
        length, width = sequence[0].shape
        scales = [_inverse(_column_norms(state)) for state in sequence]
        scale = torch.stack(scales).float()
        for start in range(0, length, CHUNK_TOKENS):
            rows = torch.stack([state[start : start + CHUNK_TOKENS].float() for state in sequence], dim=1)
            self.token_cosines += _products(functional.normalize(rows, dim=-1))
            # With each channel scaled to norm 1 along the sequence, cosines are plain products.
            self.channel_cosines += _products(rows * scale) / width
        self.angles += _angles(torch.stack([state[-1] for state in sequence]))
        self.tokens += length
        self.sequences += 1

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three matrices."""
        return self.token_cosines, self.channel_cosines, self.angles

    def merge(self, other: "LayerSimilarity") -> "LayerSimilarity":
        """The similarity over both sets of sequences together."""
        return type(self)(
            token_cosines=self.token_cosines + other.token_cosines,
            channel_cosines=self.channel_cosines + other.channel_cosines,
            angles=self.angles + other.angles,
            tokens=self.tokens + other.tokens,
            sequences=self.sequences + other.sequences,
        )

    def token_mean(self) -> Float64[Tensor, "states states"]:
        """Mean over tokens of the cosine of each pair of states."""
        return self.token_cosines / self.tokens

    def channel_mean(self) -> Float64[Tensor, "states states"]:
        """Mean over sequences and channels of the cosine along the sequence of each pair of states."""
        return self.channel_cosines / self.sequences

    def angle_mean(self) -> Float64[Tensor, "states states"]:
        """Mean over sequences of the angle, in units of pi, at the last token of each pair of states."""
        return self.angles / self.sequences

    def to_tensors(self) -> dict[str, Tensor]:
        """All there is, as tensors by name: fit for a safetensors file."""
        return {name: torch.as_tensor(value) for name, value in asdict(self).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "LayerSimilarity":
        """What `to_tensors` gave."""
        counts = {name: int(tensors[name]) for name in ("tokens", "sequences")}
        sums = {name: tensors[name] for name in ("token_cosines", "channel_cosines", "angles")}
        return cls(**sums, tokens=counts["tokens"], sequences=counts["sequences"])


def _products(rows: Float[Tensor, "tokens states hidden"]) -> Float64[Tensor, "states states"]:
    """Sum over tokens of the products of each pair of states: float32 within a token, float64 across."""
    return (rows @ rows.mT).sum(dim=0, dtype=torch.float64).cpu()


def _column_norms(state: Float[Tensor, "tokens hidden"]) -> Float64[Tensor, " hidden"]:
    """Norm of each channel along the sequence, in chunks, so that nothing of its length is copied."""
    total = torch.zeros(state.shape[1], dtype=torch.float64, device=state.device)
    for start in range(0, len(state), CHUNK_TOKENS):
        chunk = state[start : start + CHUNK_TOKENS]
        total += chunk.float().square().sum(dim=0, dtype=torch.float64)
    return total.sqrt()


def _inverse(norms: Float64[Tensor, " hidden"]) -> Float64[Tensor, " hidden"]:
    """1 / norm; 0 for a channel that is silent throughout: its cosine counts as 0."""
    silent = norms < torch.finfo(torch.float32).tiny
    return torch.where(silent, 0.0, 1 / norms)


def _angles(last: Float[Tensor, "states hidden"]) -> Float64[Tensor, "states states"]:
    """Angle between each pair, in units of pi; float64, for arccos magnifies errors near 1."""
    unit = functional.normalize(last.double(), dim=-1)
    cosines = (unit @ unit.mT).clamp(-1, 1)
    return (torch.arccos(cosines) / torch.pi).cpu()
