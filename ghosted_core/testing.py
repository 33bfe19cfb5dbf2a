"""Small models and planted data for tests; public, so that others can test against them too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from jaxtyping import Float
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

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


def _sliding(**more: Any) -> dict[str, Any]:
    return {**TINY, "sliding_window": 16, **more}


_NO_GROUPS = {key: value for key, value in TINY.items() if key != "num_key_value_heads"}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "vision_use_head": False,
}
# An image becomes four tokens between two marks.
_GEMMA3 = {
    "text_config": _sliding(head_dim=8),
    "vision_config": _VISION,
    "mm_tokens_per_image": 4,
    "image_token_index": 300,
    "boi_token_index": 301,
    "eoi_token_index": 302,
}
_EXPERTS = {"num_experts_per_tok": 2}

# For each supported model type: its configuration class, and settings that show its per-layer rules.
TINY_CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("LlamaConfig", TINY),
    "mistral": ("MistralConfig", _sliding()),
    "qwen2": ("Qwen2Config", _sliding(use_sliding_window=True, max_window_layers=3)),
    "qwen3": ("Qwen3Config", {**TINY, "head_dim": 8}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {
            **TINY,
            **_EXPERTS,
            "head_dim": 8,
            "num_experts": 4,
            "moe_intermediate_size": 32,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
        },
    ),
    "mixtral": ("MixtralConfig", {**TINY, **_EXPERTS, "num_local_experts": 4}),
    "gemma2": ("Gemma2Config", _sliding(head_dim=8)),
    "gemma3_text": ("Gemma3TextConfig", _sliding(head_dim=8)),
    "gemma3": ("Gemma3Config", _GEMMA3),
    "phi3": ("Phi3Config", TINY),
    "olmo2": ("Olmo2Config", TINY),
    "smollm3": ("SmolLM3Config", {**TINY, "no_rope_layer_interval": 3}),
    "gpt_oss": ("GptOssConfig", _sliding(head_dim=8, num_local_experts=4, **_EXPERTS)),
    "cohere2": ("Cohere2Config", _sliding()),
    "gpt_neox": ("GPTNeoXConfig", _NO_GROUPS),
    "gpt2": ("GPT2Config", {"vocab_size": 320, "n_embd": 32, "n_head": 4, "n_positions": 256}),
    "opt": ("OPTConfig", {**_NO_GROUPS, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "falcon": ("FalconConfig", {**_NO_GROUPS, "new_decoder_architecture": False}),
}


def tiny_config(model_type: str, layers: int = 6) -> PreTrainedConfig:
    """The configuration of `tiny_model`."""
    name, settings = TINY_CONFIGS[model_type]
    settings, count = dict(settings), {"num_hidden_layers": layers}
    if "text_config" in settings:
        settings["text_config"] = {**settings["text_config"], **count}
        count = {}
    config: PreTrainedConfig = getattr(transformers, name)(**settings, **count)
    return config


def tiny_model(model_type: str, layers: int = 6, *, seed: int = 0) -> PreTrainedModel:
    """A random model of the family: `layers` layers, 32 wide, 320 token ids, float32, evaluation mode."""
    torch.manual_seed(seed)
    config = tiny_config(model_type, layers)
    return _frozen(AutoModelForCausalLM.from_config(config))  # type: ignore[no-untyped-call]


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
