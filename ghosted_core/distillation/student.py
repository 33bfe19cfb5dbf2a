"""The model that trains: the teacher's own weights, and beside them in float32 the few that change."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ghosted_core.errors import UnsupportedRepairError
from ghosted_core.model.families import Family, family_of
from ghosted_core.model.heads import Head
from ghosted_core.model.skipping import LayerSkipper
from ghosted_core.model.surgery import OPERATOR_TENSOR, kept_name, operator_site, repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.quality import Repair
from ghosted_core.spec import Finetune


@dataclass(frozen=True)
class Slot:
    """One tensor that trains: where it came from, where it sits in the student, from which layer on it acts.

    `master` is its value in float32. `source` is the boundary whose operator it is, or the name of a
    tensor of the dense model.
    """

    source: Boundary | str
    path: str
    depth: int
    master: nn.Parameter

    @property
    def name(self) -> str:
        """A name for files and reports."""
        return (
            self.source
            if isinstance(self.source, str)
            else f"operator[{self.source.start},{self.source.stop})"
        )


class Student:
    """The repaired model of a job. Nothing of the dense model is changed, whatever trains."""

    def __init__(self, dense: PreTrainedModel, plan: PruningPlan, repair: Repair, settings: Finetune) -> None:
        self.family = family_of(dense.config.model_type)
        self.repair = repair
        self.model = repaired_model(dense, plan, repair.corrections, repair.replaced)
        self.slots = tuple(_slots(dense, self.family, plan, repair, settings))
        self.depth = min(slot.depth for slot in self.slots)
        self._decoder = self.model.get_submodule(self.family.decoder)
        self._skipper = LayerSkipper(self.model, self.family)
        self._head = Head(self.model, self.family)

    @property
    def masters(self) -> list[nn.Parameter]:
        """What trains, in a fixed order."""
        return [slot.master for slot in self.slots]

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return self.model.device

    def put_in_place(self) -> None:
        """The model computes with the masters, rounded to its dtype; gradients reach them."""
        for slot in self.slots:
            path, _, attribute = slot.path.rpartition(".")
            holder = self.model.get_submodule(path)._parameters  # noqa: SLF001 - it holds any tensor
            holder[attribute] = slot.master.to(self.model.dtype)  # type: ignore[assignment]

    def answer(
        self, tokens: Int64[Tensor, "windows tokens"], entering: Float[Tensor, "windows tokens hidden"]
    ) -> Float[Tensor, "positions hidden"]:
        """What the head reads, if `entering` enters layer `depth`; the layers before it do not run."""
        with self._skipper.entering(self.depth, entering):
            state: Tensor = self._decoder(input_ids=tokens, use_cache=False)[0]
        return state.flatten(0, 1)

    def logits(self, state: Float[Tensor, "positions hidden"]) -> Float[Tensor, "positions vocabulary"]:
        """The head's answer to it."""
        return self._head(state)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Inside, of each layer only the input is kept for the way back, and the layer runs twice."""
        layers = self._skipper.layers[self.depth :]
        for layer in layers:
            layer.forward = _recomputed(layer.forward)
        try:
            yield
        finally:
            for layer in layers:
                layer.__dict__.pop("forward", None)

    def repaired(self, values: Mapping[str, Tensor]) -> Repair:
        """The repair with `values`, by the names of the slots, in place of what it had."""
        corrections, replaced = dict(self.repair.corrections), dict(self.repair.replaced)
        for slot in self.slots:
            value = values[slot.name].detach()
            if isinstance(slot.source, Boundary):
                corrections[slot.source] = value.double()
            else:
                replaced[slot.source] = value.to(self.model.dtype)
        return Repair(corrections, replaced)


def activation_bytes(model: PreTrainedModel, depth: int, tokens: int) -> int:
    """About what the layers from `depth` on keep of `tokens` positions for the way back.

    In units of the stream's width: some twelve tensors of it a layer, and four of the MLP's width.
    """
    text = model.config.get_text_config()
    wide = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    layers = text.num_hidden_layers - depth
    return int(tokens * layers * (12 * text.hidden_size + 4 * wide) * model.dtype.itemsize)


def _recomputed(forward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def trained_weights(parameters: Sequence[str], family: Family, boundary: Boundary) -> list[str]:
    """The last projection of the layer before a cut, by its name in the dense model.

    Raises:
        UnsupportedRepairError: there is no layer before, or it has none.
    """
    if boundary.start == 0:
        raise UnsupportedRepairError(
            "'down_proj' of the layer before the cut trains, and no layer is before layer 0.",
            advice="Train the 'operator' alone, or keep layer 0.",
        )
    paths = [f"{family.layer_path(boundary.start - 1)}.{path}" for path in family.mlp_output]
    found = [name for name in parameters for path in paths if name in {path, f"{path}.weight"}]
    if not found:
        raise UnsupportedRepairError(f"The model has no weights at {', '.join(paths)}.")
    return found


def check_trainable(settings: Finetune | None, dense: PreTrainedModel, plan: PruningPlan) -> None:
    """Return if what is to train exists at every cut.

    Raises:
        UnsupportedRepairError: it does not.
    """
    if settings is not None and settings.trains_down_proj:
        parameters = tuple(name for name, _ in dense.named_parameters())
        for boundary in plan.boundaries:
            trained_weights(parameters, family_of(dense.config.model_type), boundary)


def _slots(
    dense: PreTrainedModel, family: Family, plan: PruningPlan, repair: Repair, settings: Finetune
) -> Iterator[Slot]:
    parameters = dict(dense.named_parameters())
    for boundary in plan.boundaries:
        position = plan.position(boundary)
        if settings.trains_down_proj:
            for name in trained_weights(tuple(parameters), family, boundary):
                value = repair.replaced.get(name, parameters[name])
                yield Slot(name, str(kept_name(name, plan, family)), position - 1, _master(value, dense))
        if settings.trains_operators:
            path = f"{operator_site(plan, boundary, family)}.{OPERATOR_TENSOR}"
            yield Slot(boundary, path, position, _master(repair.corrections[boundary], dense))


def _master(value: Tensor, dense: PreTrainedModel) -> nn.Parameter:
    # A copy: it trains, and the repair and the dense model stay what they are.
    return nn.Parameter(value.detach().to(device=dense.device, dtype=torch.float32, copy=True))
