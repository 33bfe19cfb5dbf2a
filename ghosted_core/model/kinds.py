"""What kind of layer each one is, in words that survive renumbering."""

from torch import nn
from transformers import PreTrainedModel

from ghosted_core.checkpoint.modeling_ghosted import OPERATOR
from ghosted_core.model.families import Family, layers_of


def layer_kinds(model: PreTrainedModel, family: Family) -> tuple[str, ...]:
    """For each decoder layer, its class, those of its parts, and what the configuration says of it alone.

    Sliding and full attention, plain MLP and experts, position codes or none: two layers of one kind
    are built alike. An operator before the layer is no part of it.
    """
    config = model.config.get_text_config()
    lists = [values for name in family.per_layer_lists if (values := getattr(config, name, None))]
    return tuple(
        " ".join([_built(layer), *(str(values[index]) for values in lists)])
        for index, layer in enumerate(layers_of(model, family))
    )


def _built(layer: nn.Module) -> str:
    parts = [type(part).__name__ for name, part in layer.named_children() if name != OPERATOR]
    return f"{type(layer).__name__}({', '.join(parts)})"
