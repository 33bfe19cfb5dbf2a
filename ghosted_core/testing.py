"""Small models and planted data for tests; public, so that others can test against them too."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedModel

from ghosted_core.statistics import BoundaryStatistics, Feature, StatisticsRequest

TINY = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def tiny_llama(layers: int = 6, *, tied: bool = False, seed: int = 0) -> PreTrainedModel:
    """A random Llama of `layers` layers, 32 wide, 320 token ids, float32, in evaluation mode."""
    torch.manual_seed(seed)
    config = LlamaConfig(**TINY, num_hidden_layers=layers, tie_word_embeddings=tied)  # type: ignore[arg-type]
    return _frozen(LlamaForCausalLM(config))


def tiny_mistral(layers: int = 6, *, seed: int = 0) -> PreTrainedModel:
    """A random Mistral of the same sizes."""
    torch.manual_seed(seed)
    config = MistralConfig(**TINY, num_hidden_layers=layers, sliding_window=None)  # type: ignore[arg-type]
    return _frozen(MistralForCausalLM(config))


def _frozen(model: PreTrainedModel) -> PreTrainedModel:
    model.train(mode=False)
    model.requires_grad_(requires_grad=False)
    return model


@dataclass(frozen=True)
class PlantedBoundary:
    """Activations whose shift is an exact linear function: leaving = entering (I + correction)."""

    entering: Float[Tensor, "tokens hidden"]
    leaving: Float[Tensor, "tokens hidden"]
    correction: Float[Tensor, "hidden hidden"]

    @classmethod
    def make(
        cls, *, tokens: int = 512, hidden: int = 24, noise: float = 0.0, seed: int = 0
    ) -> "PlantedBoundary":
        """Gaussian activations; `noise` is the standard deviation of what no operator explains."""
        generator = torch.Generator().manual_seed(seed)
        entering = torch.randn(tokens, hidden, generator=generator, dtype=torch.float64)
        correction = torch.randn(hidden, hidden, generator=generator, dtype=torch.float64) / hidden**0.5
        disturbance = noise * torch.randn(tokens, hidden, generator=generator, dtype=torch.float64)
        return cls(entering, entering + entering @ correction + disturbance, correction)

    def statistics(self, request: StatisticsRequest, *, batches: int = 1) -> BoundaryStatistics:
        """The sums over all tokens, accumulated in `batches` parts."""
        statistics = BoundaryStatistics(request)
        parts = zip(self.entering.chunk(batches), self.leaving.chunk(batches), strict=True)
        for entering, leaving in parts:
            statistics.update({Feature.ENTERING: entering, Feature.LEAVING: leaving})
        return statistics
