"""Running a model as if some of its layers were not there, or had run already."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ghosted_core.model.families import Family, layers_of


class _Seen(BaseException):
    """The first layer has answered; the rest need not run. Only `_in_tuples` catches it."""


class LayerSkipper:
    """Lets layers of a model pass their input on unchanged, for a while.

    Nothing is built or copied, and the model is afterwards as it was. Every layer keeps its index,
    so whatever the decoder gives to a layer by its index stays right.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.layers = layers_of(model, family)
        self._decoder = model.get_submodule(family.decoder)

    @contextmanager
    def without(self, removed: Collection[int]) -> Iterator[None]:
        """Inside, the layers `removed` are left out."""
        with self._standing_in(dict.fromkeys(removed, self._skip())):
            yield

    @contextmanager
    def entering(self, index: int, state: Tensor) -> Iterator[None]:
        """Inside, no layer before `index` runs, and what enters layer `index` is `state`.

        Whatever the tokens are, `state` is of shape (windows, tokens, hidden); L as `index` means the
        final norm. At 0 nothing is left out, and `state` is not looked at.
        """
        answers = dict.fromkeys(range(index), self._skip())
        if index:
            answers[index - 1] = self._answer(state)
        with self._standing_in(answers):
            yield

    @contextmanager
    def _standing_in(self, answers: Mapping[int, Callable[..., Any]]) -> Iterator[None]:
        # A forward of the instance's own (accelerate puts one there) comes back; the class's needs no copy.
        own = {index: self.layers[index].__dict__.get("forward") for index in answers}
        try:
            for index, answer in answers.items():
                self.layers[index].forward = answer
            yield
        finally:
            for index, forward in own.items():
                self.layers[index].__dict__.pop("forward", None)
                if forward is not None:
                    self.layers[index].forward = forward

    def _skip(self) -> Callable[..., Any]:
        # Layers of some architectures answer with the hidden state alone, of others with a tuple.
        return _pass_on_in_tuple if self._in_tuples else _pass_on

    def _answer(self, state: Tensor) -> Callable[..., Any]:
        answer = (state, None) if self._in_tuples else state
        return lambda *_args, **_kwargs: answer

    @cached_property
    @torch.no_grad()
    def _in_tuples(self) -> bool:
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
