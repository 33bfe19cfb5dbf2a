"""Tiny models whose layers are called, or answer, in other ways than Llama's."""

import torch
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

from ghosted_core.model.families import Family
from ghosted_core.testing import TINY

GEMMA2 = Family("gemma2", "Gemma2ForCausalLM")
MIXTRAL = Family("mixtral", "MixtralForCausalLM")
FALCON = Family(
    "falcon", "FalconForCausalLM", "transformer", layers="transformer.h", final_norm="transformer.ln_f"
)
GPT2 = Family("gpt2", "GPT2LMHeadModel", "transformer", layers="transformer.h", final_norm="transformer.ln_f")


def tiny_gemma2() -> PreTrainedModel:
    """Soft-capped logits, scaled embeddings, and two kinds of attention in turn."""
    torch.manual_seed(0)
    config = Gemma2Config(**TINY, head_dim=8, num_hidden_layers=4, sliding_window=8)
    return Gemma2ForCausalLM(config).eval()


def tiny_mixtral() -> PreTrainedModel:
    """Experts, some of which see no token."""
    torch.manual_seed(0)
    config = MixtralConfig(**TINY, num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=1)
    return MixtralForCausalLM(config).eval()


def tiny_falcon() -> PreTrainedModel:
    """Layers answer in tuples."""
    torch.manual_seed(0)
    config = FalconConfig(vocab_size=320, hidden_size=32, num_hidden_layers=4, num_attention_heads=4)
    return FalconForCausalLM(config).eval()


def tiny_gpt2() -> PreTrainedModel:
    """Layers are called by position; Conv1D instead of Linear; the head is tied."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=320, n_embd=32, n_layer=4, n_head=4, n_positions=64)
    return GPT2LMHeadModel(config).eval()
