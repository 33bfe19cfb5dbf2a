"""Where the parts of a decoder lie in each architecture, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from torch import nn

from ghosted_core.errors import UnsupportedModelError


class Block(Enum):
    """How a decoder layer adds to the stream; `described` ends "its layers are ..."."""

    SEQUENTIAL_PRE_NORM = "sequential_pre_norm"
    PARALLEL = "parallel"
    POST_NORM = "post_norm"
    EXPERTS = "experts"

    @property
    def described(self) -> str:
        """In words."""
        return {
            Block.SEQUENTIAL_PRE_NORM: "x + attention, then + MLP, each of the normalized stream",
            Block.PARALLEL: "attention and MLP side by side",
            Block.POST_NORM: "normalized after attention or MLP, not only before",
            Block.EXPERTS: "mixtures of experts",
        }[self]


class Norm(Enum):
    """What the stream is normalized with."""

    RMS = "rms"
    LAYER = "layer"


@dataclass(frozen=True)
class DenseLayerRule:
    """Which layers of a mixture of experts have a plain MLP.

    Those in the list `indices`, and those whose number, counted from 1, `step` does not divide.
    Removing layers changes their numbers, so the rule is written out: step 1, and all plain layers
    in the list.
    """

    indices: str
    step: str


@dataclass(frozen=True)
class RefusedSetting:
    """A configuration entry under which layers cannot be removed, with the reason."""

    name: str
    value: bool
    reason: str


@dataclass(frozen=True)
class Family:
    """Module paths inside a causal language model, and what its configuration says per layer.

    Where a model has parts beside the language model (a vision tower), the paths lead into the language
    model, and all configuration entries are those of its own nested configuration. The other parts stay
    as they are.

    `architecture` is the stock transformers class; `per_layer_lists` names the configuration
    entries that hold one value a layer and must be cut along with them. `embeddings` are all that add
    up to the first state. `attention_output` and `mlp_output` are the projections, inside a layer,
    that write to the stream (whichever of them a layer has); `input_first` says that their weights are
    stored as (in, out). `at_most_layers` are entries that count layers and must not exceed their number.
    In `refused_dtypes` the stream overflows.
    """

    model_type: str
    architecture: str
    decoder: str = "model"
    layers: str = "model.layers"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    embeddings: tuple[str, ...] = ("model.embed_tokens",)
    attention_output: tuple[str, ...] = ("self_attn.o_proj",)
    mlp_output: tuple[str, ...] = ("mlp.down_proj",)
    input_first: bool = False
    block: Block = Block.SEQUENTIAL_PRE_NORM
    norm: Norm = Norm.RMS
    per_layer_lists: tuple[str, ...] = ()
    dense_layers: DenseLayerRule | None = None
    at_most_layers: tuple[str, ...] = ()
    refused: tuple[RefusedSetting, ...] = ()
    refused_dtypes: tuple[str, ...] = ()

    def layer_path(self, index: int) -> str:
        """Path of one decoder layer."""
        return f"{self.layers}.{index}"

    def mlp_output_path(self, index: int) -> str:
        """Path of the module whose output the MLP of a layer adds to the stream."""
        return f"{self.layer_path(index)}.{self.mlp_output[0]}"


SUPPORTED: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM"),
        Family("mistral", "MistralForCausalLM"),
        Family(
            "qwen2",
            "Qwen2ForCausalLM",
            per_layer_lists=("layer_types",),
            at_most_layers=("max_window_layers",),
        ),
        Family(
            "qwen3",
            "Qwen3ForCausalLM",
            per_layer_lists=("layer_types",),
            at_most_layers=("max_window_layers",),
        ),
        Family(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            mlp_output=("mlp.experts.down_proj", "mlp.down_proj"),
            block=Block.EXPERTS,
            dense_layers=DenseLayerRule(indices="mlp_only_layers", step="decoder_sparse_step"),
            at_most_layers=("max_window_layers",),
        ),
        Family(
            "mixtral",
            "MixtralForCausalLM",
            mlp_output=("mlp.experts.down_proj",),
            block=Block.EXPERTS,
        ),
        Family(
            "gemma2",
            "Gemma2ForCausalLM",
            block=Block.POST_NORM,
            per_layer_lists=("layer_types",),
            refused_dtypes=("float16",),
        ),
        Family(
            "gemma3_text",
            "Gemma3ForCausalLM",
            block=Block.POST_NORM,
            per_layer_lists=("layer_types",),
            refused_dtypes=("float16",),
        ),
        Family(
            "gemma3",
            "Gemma3ForConditionalGeneration",
            decoder="model.language_model",
            layers="model.language_model.layers",
            final_norm="model.language_model.norm",
            embeddings=("model.language_model.embed_tokens",),
            block=Block.POST_NORM,
            per_layer_lists=("layer_types",),
            refused_dtypes=("float16",),
        ),
        Family("phi3", "Phi3ForCausalLM"),
        Family("olmo2", "Olmo2ForCausalLM", block=Block.POST_NORM),
        Family("smollm3", "SmolLM3ForCausalLM", per_layer_lists=("no_rope_layers", "layer_types")),
        Family(
            "gpt_oss",
            "GptOssForCausalLM",
            mlp_output=("mlp.experts.down_proj",),
            block=Block.EXPERTS,
            per_layer_lists=("layer_types",),
        ),
        Family(
            "cohere2",
            "Cohere2ForCausalLM",
            block=Block.PARALLEL,
            norm=Norm.LAYER,
            per_layer_lists=("layer_types",),
        ),
        Family(
            "gpt_neox",
            "GPTNeoXForCausalLM",
            decoder="gpt_neox",
            layers="gpt_neox.layers",
            final_norm="gpt_neox.final_layer_norm",
            embeddings=("gpt_neox.embed_in",),
            attention_output=("attention.dense",),
            mlp_output=("mlp.dense_4h_to_h",),
            block=Block.PARALLEL,
            norm=Norm.LAYER,
        ),
        Family(
            "gpt2",
            "GPT2LMHeadModel",
            decoder="transformer",
            layers="transformer.h",
            final_norm="transformer.ln_f",
            embeddings=("transformer.wte", "transformer.wpe"),
            attention_output=("attn.c_proj",),
            mlp_output=("mlp.c_proj",),
            input_first=True,
            norm=Norm.LAYER,
            refused=(
                RefusedSetting(
                    "scale_attn_by_inverse_layer_idx",
                    value=True,
                    reason="attention is scaled by the layer's number",
                ),
            ),
        ),
        Family(
            "opt",
            "OPTForCausalLM",
            decoder="model.decoder",
            layers="model.decoder.layers",
            final_norm="model.decoder.final_layer_norm",
            embeddings=("model.decoder.embed_tokens", "model.decoder.embed_positions"),
            attention_output=("self_attn.out_proj",),
            mlp_output=("fc2",),
            norm=Norm.LAYER,
            refused=(
                RefusedSetting(
                    "do_layer_norm_before", value=False, reason="there is no norm after the last layer"
                ),
                RefusedSetting(
                    "_remove_final_layer_norm", value=True, reason="there is no norm after the last layer"
                ),
            ),
        ),
        Family(
            "falcon",
            "FalconForCausalLM",
            decoder="transformer",
            layers="transformer.h",
            final_norm="transformer.ln_f",
            embeddings=("transformer.word_embeddings",),
            attention_output=("self_attention.dense",),
            mlp_output=("mlp.dense_4h_to_h",),
            block=Block.PARALLEL,
            norm=Norm.LAYER,
        ),
    )
}


def family_of(model_type: str) -> Family:
    """The family of a configuration's `model_type`.

    Raises:
        UnsupportedModelError: it is not in the table.
    """
    try:
        return SUPPORTED[model_type]
    except KeyError:
        known = ", ".join(sorted(SUPPORTED))
        raise UnsupportedModelError(
            f"Model type '{model_type}' is not supported; supported are: {known}."
        ) from None


def layers_of(model: nn.Module, family: Family) -> nn.ModuleList:
    """The decoder layers of `model` in order."""
    layers = model.get_submodule(family.layers)
    if not isinstance(layers, nn.ModuleList):
        raise UnsupportedModelError(f"'{family.layers}' is not a list of layers in this model.")
    return layers
