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
class Family:
    """Module paths inside a causal language model, and what its configuration says per layer.

    `architecture` is the stock transformers class; `per_layer_lists` names the configuration
    entries that hold one value a layer and must be cut along with them. `embeddings` are all that add
    up to the first state. `attention_output` and `mlp_output` are the projections, inside a layer,
    that write to the stream (whichever of them a layer has); `input_first` says that their weights are
    stored as (in, out).
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
