"""Where the parts of a decoder lie in each architecture, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ghosted_core.errors import UnsupportedModelError


@dataclass(frozen=True)
class Family:
    """Module paths inside a causal language model, and what its configuration says per layer.

    `architecture` is the stock transformers class; `per_layer_lists` names the configuration
    entries that hold one value a layer and must be cut along with them.
    """

    model_type: str
    architecture: str
    decoder: str = "model"
    layers: str = "model.layers"
    final_norm: str = "model.norm"
    per_layer_lists: tuple[str, ...] = ()

    def layer_path(self, index: int) -> str:
        """Path of one decoder layer."""
        return f"{self.layers}.{index}"


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
