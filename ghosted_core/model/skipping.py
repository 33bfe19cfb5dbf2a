"""Running a model as if some of its layers were not there."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from ghosted_core.model.families import Family, layers_of


class _Seen(BaseException):
    """The first layer has answered; the rest need not run. Only `_answers_in_tuples` catches it."""


class LayerSkipper:
    """Lets layers of a model pass their input on unchanged, for a while.

    Nothing is built or copied, and the model is afterwards as it was. Every layer keeps its index,
    so whatever the decoder gives to a layer by its index stays right.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.layers = layers_of(model, family)
        self._decoder = model.get_submodule(family.decoder)
        self._forward: Callable[..., Any] | None = None

    @contextmanager
    def without(self, removed: Collection[int]) -> Iterator[None]:
        """Inside, the layers `removed` are left out."""
        skip = self._forward = self._forward or self._identity()
        chosen = [self.layers[index] for index in removed]
        # A forward of the instance's own (accelerate puts one there) comes back; the class's needs no copy.
        own = [layer.__dict__.get("forward") for layer in chosen]
        try:
            for layer in chosen:
                layer.forward = skip
            yield
        finally:
            for layer, forward in zip(chosen, own, strict=True):
                layer.__dict__.pop("forward", None)
                if forward is not None:
                    layer.forward = forward

    def _identity(self) -> Callable[..., Any]:
        # Layers of some architectures answer with the hidden state alone, of others with a tuple.
        return _pass_on_in_tuple if self._answers_in_tuples() else _pass_on

    @torch.no_grad()
    def _answers_in_tuples(self) -> bool:
        answers: list[Any] = []

        def look(_module: nn.Module, _args: Any, answer: Any) -> None:
            answers.append(answer)
            raise _Seen

        handle = self.layers[0].register_forward_hook(look)
        try:
            with suppress(_Seen):
                device = next(self.layers.parameters()).device
                self._decoder(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=device), use_cache=False)
        finally:
            handle.remove()
        return isinstance(answers[0], tuple)


def _pass_on(*args: Any, **kwargs: Any) -> Tensor:
    state: Tensor = args[0] if args else kwargs["hidden_states"]
    return state


def _pass_on_in_tuple(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    return _pass_on(*args, **kwargs), None
