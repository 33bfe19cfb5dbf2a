"""A model with layers removed and cuts repaired, made from the unpruned one without copying weights."""

import copy
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ghosted_core.checkpoint.modeling_ghosted import columns_together, ghosted_classes
from ghosted_core.model.families import DenseLayerRule, Family, family_of
from ghosted_core.plan import Boundary, PruningPlan

OPERATOR_TENSOR = "ghosted_operator.correction"
NOTHING: Mapping[str, Tensor] = MappingProxyType({})


def pruned_model(
    dense: PreTrainedModel, plan: PruningPlan, replaced: Mapping[str, Tensor] = NOTHING
) -> PreTrainedModel:
    """`dense` without the layers of `plan`, of the same stock class, sharing its weights.

    `replaced` holds new values for tensors of `dense`, by their names there; a tied tensor is replaced
    wherever it is used.
    """
    family = family_of(dense.config.model_type)
    model = _on_meta(type(dense), pruned_config(dense.config, plan, family))
    _adopt(model, dict(_kept_tensors(dense, plan, family, replaced)))
    return _like(model, dense)


def repaired_model(
    dense: PreTrainedModel,
    plan: PruningPlan,
    corrections: Mapping[Boundary, Tensor],
    replaced: Mapping[str, Tensor] = NOTHING,
) -> PreTrainedModel:
    """`dense` without the layers of `plan` and with its cuts repaired, sharing all weights but `replaced`.

    `corrections` maps boundaries to the M of their operator x + x M, shape (hidden, hidden), any dtype;
    it is rounded to the model's. The class is then the patched form of the stock one, as in the
    checkpoint; without operators it is the stock one.
    """
    if not corrections:
        return pruned_model(dense, plan, replaced)
    family = family_of(dense.config.model_type)
    sites = {operator_site(plan, boundary, family): m for boundary, m in corrections.items()}
    config_class, model_class = ghosted_classes(type(dense).__name__)
    settings = pruned_config(dense.config, plan, family).to_dict()
    model = _on_meta(model_class, config_class(**settings, ghosted_operators=list(sites)))
    tensors = dict(_kept_tensors(dense, plan, family, replaced))
    for site, correction in sites.items():
        rounded = columns_together(correction.to(device=dense.device, dtype=dense.dtype))
        tensors[f"{site}.{OPERATOR_TENSOR}"] = nn.Parameter(rounded, requires_grad=False)
    _adopt(model, tensors)
    return _like(model, dense)


def operator_site(plan: PruningPlan, boundary: Boundary, family: Family) -> str:
    """Path, in the pruned model, of the module whose input the operator repairs."""
    position = plan.position(boundary)
    return family.final_norm if position == len(plan.kept) else family.layer_path(position)


def pruned_config(config: PreTrainedConfig, plan: PruningPlan, family: Family) -> PreTrainedConfig:
    """A copy of `config` for the kept layers only; in a nested one only the language model's part differs."""
    pruned = copy.deepcopy(config)
    text = pruned.get_text_config()
    # Lists first: newer configurations check their lengths against the number of layers.
    for name in family.per_layer_lists:
        values = getattr(text, name, None)
        if values is not None:
            setattr(text, name, [values[index] for index in plan.kept])
    if family.dense_layers is not None:
        _write_out(family.dense_layers, text, plan)
    for name in family.at_most_layers:
        if (getattr(text, name, None) or 0) > len(plan.kept):
            setattr(text, name, len(plan.kept))
    text.num_hidden_layers = len(plan.kept)
    return pruned


def _write_out(rule: DenseLayerRule, config: PreTrainedConfig, plan: PruningPlan) -> None:
    """Name each plain layer, instead of a rule on numbers that have changed."""
    listed, step = set(getattr(config, rule.indices) or ()), getattr(config, rule.step)
    dense = [new for new, old in enumerate(plan.kept) if old in listed or (old + 1) % step]
    setattr(config, rule.indices, dense)
    setattr(config, rule.step, 1)


def kept_name(name: str, plan: PruningPlan, family: Family) -> str | None:
    """The pruned model's name for a tensor of the source, None if it goes with its layer."""
    prefix = family.layers + "."
    if not name.startswith(prefix):
        return name
    index, _, rest = name.removeprefix(prefix).partition(".")
    if int(index) not in plan.kept:
        return None
    return f"{prefix}{plan.kept.index(int(index))}.{rest}"


def _kept_tensors(
    dense: nn.Module, plan: PruningPlan, family: Family, replaced: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    # Tied parameters appear under each of their names, so that they are still one afterwards.
    parameters = dict(dense.named_parameters(remove_duplicate=False))
    # By identity: the new value of a tied tensor takes the place of the old one under all its names.
    fresh = {
        id(parameters[name]): nn.Parameter(value, requires_grad=False) for name, value in replaced.items()
    }
    for source in (parameters.items(), dense.named_buffers(remove_duplicate=False)):
        for name, tensor in source:
            renamed = kept_name(name, plan, family)
            if renamed is not None:
                yield renamed, fresh.get(id(tensor), tensor)


def _on_meta(model_class: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """An instance without storage: building it renumbers the layers and costs nothing."""
    with torch.device("meta"):
        model: PreTrainedModel = model_class(config)
    return model


def _adopt(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put `tensors` in place of the model's own, parameters and buffers alike."""
    own = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, _ in own:
        path, _, attribute = name.rpartition(".")
        module = model.get_submodule(path)
        holder = module._parameters if attribute in module._parameters else module._buffers  # noqa: SLF001
        holder[attribute] = tensors[name]  # type: ignore[assignment]


def _like(model: PreTrainedModel, dense: PreTrainedModel) -> PreTrainedModel:
    if dense.generation_config is not None:
        model.generation_config = copy.deepcopy(dense.generation_config)
    model.config.architectures = [type(model).__name__]
    # How names in files became names in memory, so that saving can undo it: repositories differ.
    if hasattr(dense, "_weight_conversions"):
        model._weight_conversions = dense._weight_conversions  # noqa: SLF001
    model.requires_grad_(requires_grad=False)
    model.train(mode=False)
    return model
