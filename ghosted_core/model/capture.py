"""Reading the residual stream of a decoder while it runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ghosted_core.model.families import Family, layers_of


class _Reached(BaseException):
    """The last wanted state is there; the rest of the model need not run. Only `read` catches it."""


class ResidualStream:
    """The states x_0 .. x_L of a model: x_l enters layer l, x_L leaves the last layer.

    x_L is taken before the final norm, where an operator at the end would act. The head never
    runs, and no layer after the last state asked for.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.decoder = model.get_submodule(family.decoder)
        self.points: list[nn.Module] = [*layers_of(model, family), model.get_submodule(family.final_norm)]

    @property
    def layer_count(self) -> int:
        """Number of decoder layers, L."""
        return len(self.points) - 1

    @torch.no_grad()
    def read(
        self, tokens: Int64[Tensor, "windows tokens"], states: Sequence[int]
    ) -> dict[int, Float[Tensor, "windows tokens hidden"]]:
        """The states of the given indices for a batch of windows, in the model's dtype and device."""
        found: dict[int, Tensor] = {}
        with self._hooks(found, states), suppress(_Reached):
            self.decoder(input_ids=tokens, use_cache=False)
        return found

    @contextmanager
    def _hooks(self, found: dict[int, Tensor], states: Sequence[int]) -> Iterator[None]:
        last = max(states)
        handles: list[RemovableHandle] = []
        try:
            for index in sorted(set(states)):
                hook = _keep_input(found, index, stop=index == last)
                handles.append(self.points[index].register_forward_pre_hook(hook, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()


def _keep_input(
    found: dict[int, Tensor], index: int, *, stop: bool
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found[index] = args[0] if args else kwargs["hidden_states"]
        if stop:
            raise _Reached

    return hook
