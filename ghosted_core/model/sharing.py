"""How much of the way through two models is the same."""

from collections.abc import Iterator

from torch import nn

from ghosted_core.model.families import Family, layers_of


def shared_depth(dense: nn.Module, variant: nn.Module, family: Family) -> int:
    """The number d of leading layers whose states x_0 .. x_d are those of both models.

    Decided by identity: `variant` was made of `dense`, and what was not changed is the same tensor.
    An operator before a layer is part of that layer.
    """
    if _tensors_outside_layers(dense, family) != _tensors_outside_layers(variant, family):
        return 0
    depth = 0
    for own, other in zip(layers_of(dense, family), layers_of(variant, family), strict=False):
        if _identities(own) != _identities(other):
            break
        depth += 1
    return depth


def _identities(module: nn.Module) -> dict[str, int]:
    return {name: id(tensor) for name, tensor in _tensors(module)}


def _tensors(module: nn.Module) -> Iterator[tuple[str, object]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _tensors_outside_layers(model: nn.Module, family: Family) -> dict[str, int]:
    """Of the decoder, what runs before the layers: embeddings, positions."""
    decoder = f"{family.decoder}."
    later = (f"{family.layers}.", f"{family.final_norm}.")
    return {
        name: id(tensor)
        for name, tensor in _tensors(model)
        if name.startswith(decoder) and not name.startswith(later)
    }
