"""The head of a model by itself: logits of states that the decoder made before."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from ghosted_core.model.families import Family


@dataclass
class _Answer(ModelOutput):
    """What a decoder answers, with nothing in it but the last hidden state: the rest is None."""

    last_hidden_state: Tensor | None = None

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Head:
    """Everything of a model after its decoder: projection, scale, cap, as the model itself applies them."""

    def __init__(self, model: nn.Module, family: Family) -> None:
        self._model = model
        self._decoder = model.get_submodule(family.decoder)

    def __call__(self, state: Float[Tensor, "positions hidden"]) -> Float[Tensor, "positions vocabulary"]:
        """The logits at positions of which the decoder's answer is `state`; no layer runs."""
        # Only their number matters; a model with other parts than the language model embeds them.
        tokens = torch.zeros(1, len(state), dtype=torch.int64, device=state.device)
        with _answering(self._decoder, state[None]):
            logits: Tensor = self._model(input_ids=tokens, use_cache=False).logits
        return logits[0]


@contextmanager
def _answering(decoder: nn.Module, state: Tensor) -> Iterator[None]:
    def answer(*_args: Any, **_kwargs: Any) -> _Answer:
        return _Answer(last_hidden_state=state)

    own = decoder.__dict__.get("forward")
    decoder.forward = answer
    try:
        yield
    finally:
        decoder.__dict__.pop("forward", None)
        if own is not None:
            decoder.forward = own
