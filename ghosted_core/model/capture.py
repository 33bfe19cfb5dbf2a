"""Reading the residual stream of a decoder while it runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ghosted_core.model.families import Family, layers_of


class _Reached(BaseException):
    """The last wanted state is there; the rest of the model need not run. Only `read` catches it."""


@dataclass(frozen=True)
class Observed:
    """What was seen of a batch: states by index, and MLP outputs by layer, (windows, tokens, hidden)."""

    states: dict[int, Tensor] = field(default_factory=dict)
    mlp: dict[int, Tensor] = field(default_factory=dict)


class ResidualStream:
    """The states x_0 .. x_L of a model: x_l enters layer l, x_L leaves the last layer.

    x_L is taken before the final norm, where an operator at the end would act. The head never
    runs, and no layer after the last state asked for.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self._model, self._family = model, family
        self.decoder = model.get_submodule(family.decoder)
        self.points: list[nn.Module] = [*layers_of(model, family), model.get_submodule(family.final_norm)]

    @property
    def layer_count(self) -> int:
        """Number of decoder layers, L."""
        return len(self.points) - 1

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return next(self._model.parameters()).device

    def read(
        self, tokens: Int64[Tensor, "windows tokens"], states: Sequence[int]
    ) -> dict[int, Float[Tensor, "windows tokens hidden"]]:
        """The states of the given indices for a batch of windows, in the model's dtype and device."""
        return self.observe(tokens, states).states

    @torch.no_grad()
    def observe(
        self, tokens: Int64[Tensor, "windows tokens"], states: Sequence[int], mlp_layers: Sequence[int] = ()
    ) -> Observed:
        """The same, with what the MLPs of `mlp_layers`, all before the last state, add to the stream."""
        found = Observed()
        with self._hooks(found, states, mlp_layers), suppress(_Reached):
            self.decoder(input_ids=tokens, use_cache=False)
        # Some layers run their MLP on all tokens in one row.
        found.mlp.update({layer: output.view(*tokens.shape, -1) for layer, output in found.mlp.items()})
        return found

    @torch.no_grad()
    def resume(
        self, tokens: Int64[Tensor, "windows tokens"], entering: Float[Tensor, "windows tokens hidden"]
    ) -> Float[Tensor, "windows tokens hidden"]:
        """The last state of this model if its first is `entering`; of `tokens` only the shape matters."""
        handle = self.points[0].register_forward_pre_hook(_replace_input(entering), with_kwargs=True)
        try:
            return self.read(tokens, [self.layer_count])[self.layer_count]
        finally:
            handle.remove()

    @contextmanager
    def _hooks(self, found: Observed, states: Sequence[int], mlp_layers: Sequence[int]) -> Iterator[None]:
        last = max(states)
        handles: list[RemovableHandle] = []
        try:
            for index in sorted(set(states)):
                hook = _keep_input(found.states, index, stop=index == last)
                handles.append(self.points[index].register_forward_pre_hook(hook, with_kwargs=True))
            for layer in sorted(set(mlp_layers)):
                module = self._model.get_submodule(self._family.mlp_output_path(layer))
                handles.append(module.register_forward_hook(_keep_output(found.mlp, layer)))
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


def _keep_output(found: dict[int, Tensor], index: int) -> Callable[[nn.Module, Any, Tensor], None]:
    def hook(_module: nn.Module, _args: Any, output: Tensor) -> None:
        found[index] = output

    return hook


def _replace_input(
    entering: Tensor,
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    def hook(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (entering, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": entering}

    return hook
