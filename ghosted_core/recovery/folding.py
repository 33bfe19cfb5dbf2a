"""Repairs that need no operator: the weights before the cut take them in."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from ghosted_core.errors import NonFiniteError, UnsupportedRepairError
from ghosted_core.model.families import Family
from ghosted_core.plan import PruningPlan
from ghosted_core.recovery.base import MlpMap, Outcome, StreamScale


def folded_tensors(
    dense: nn.Module, family: Family, plan: PruningPlan, outcomes: Iterable[Outcome]
) -> dict[str, Tensor]:
    """New values for tensors of `dense`, by their names there, in its dtype; `dense` is not touched.

    Together they make each folding repair of `outcomes` happen at its boundary, several of them too.
    Computed in float64 for maps and in one rounding for scales.

    Raises:
        UnsupportedRepairError: the model lacks a tensor that would have to change.
        NonFiniteError: a new value does not fit the dtype.
    """
    outcomes = tuple(outcomes)
    tensors = dict(dense.named_parameters(remove_duplicate=False))
    factors = stream_factors(tensors, family, plan, [o for o in outcomes if isinstance(o, StreamScale)])
    changed = {name: tensors[name].detach() * factor for name, factor in factors.items()}
    for outcome in outcomes:
        if isinstance(outcome, MlpMap):
            changed.update(_mapped(tensors, family, outcome))
    for name, value in changed.items():
        if not bool(torch.isfinite(value).all()):
            raise NonFiniteError(f"The repaired '{name}' is not finite in {value.dtype}.")
    return changed


def stream_factors(
    tensors: Mapping[str, Tensor], family: Family, plan: PruningPlan, scales: Iterable[StreamScale]
) -> dict[str, float]:
    """What each tensor is to be multiplied by.

    The stream at a boundary is c x if all that was added to it before is c times what it was: the
    embeddings, and what each layer writes. Layers read it through their norms, so nothing else of them
    changes (up to the norm's epsilon). A tensor before several boundaries takes the product of their c.
    With a tied head the final norm is divided by what the embeddings were multiplied by: its logits
    stay.
    """
    factors: dict[str, float] = defaultdict(lambda: 1.0)
    for scale in scales:
        for name in _embeddings(tensors, family):
            factors[name] *= scale.factor
        for layer in plan.kept:
            if layer < scale.boundary.start:
                for name in _written_by(tensors, family, layer):
                    factors[name] *= scale.factor
        if _is_tied(tensors, family):
            for name in _below(tensors, family.final_norm):
                factors[name] /= scale.factor
    return dict(factors)


def _embeddings(tensors: Mapping[str, Tensor], family: Family) -> list[str]:
    return [name for path in family.embeddings for name in _required(tensors, (path,))]


def _written_by(tensors: Mapping[str, Tensor], family: Family, layer: int) -> Iterator[str]:
    """The tensors through which layer `layer` adds to the stream, biases included."""
    for alternatives in (family.attention_output, family.mlp_output):
        yield from _required(tensors, [f"{family.layer_path(layer)}.{path}" for path in alternatives])


def _required(tensors: Mapping[str, Tensor], paths: Iterable[str]) -> list[str]:
    found = [name for path in paths for name in _below(tensors, path)]
    if not found:
        raise UnsupportedRepairError(f"The model has no weights at {', '.join(paths)}.")
    return found


def _below(tensors: Mapping[str, Tensor], path: str) -> list[str]:
    # A module's parameters, or a bare parameter and its bias: `experts.down_proj`, `.down_proj_bias`.
    return [name for name in tensors if name == path or name.startswith((f"{path}.", f"{path}_bias"))]


def _is_tied(tensors: Mapping[str, Tensor], family: Family) -> bool:
    """By the tensors themselves, whatever the configuration says."""
    head = tensors.get(f"{family.head}.weight")
    return any(tensors[name] is head for name in _embeddings(tensors, family))


def _mapped(tensors: Mapping[str, Tensor], family: Family, repair: MlpMap) -> Iterator[tuple[str, Tensor]]:
    """W <- T' W for weights of (out, in), and b <- b T: then (a W' + b) T is what the MLP adds."""
    layer = family.layer_path(repair.boundary.start - 1)
    for name in _required(tensors, [f"{layer}.{path}" for path in family.mlp_output]):
        old = tensors[name].detach()
        wide, matrix = old.double(), repair.matrix.to(device=old.device, dtype=torch.float64)
        input_first = wide.ndim == 1 or family.input_first
        yield name, (wide @ matrix if input_first else matrix.mT @ wide).to(old.dtype)
