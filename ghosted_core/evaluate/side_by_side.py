"""The logits of several models that were made of one, the work that they share done once."""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.model.sharing import shared_depth
from ghosted_core.model.skipping import LayerSkipper


class SideBySide:
    """Runs `models`, which were made of `dense`; it may be one of them.

    The layers that a model shares with `dense` up to its first difference run once for all, and the
    logits are those of the model by itself, bit by bit.
    """

    def __init__(self, dense: PreTrainedModel, models: Mapping[str, PreTrainedModel]) -> None:
        family = family_of(dense.config.model_type)
        self._models = models
        self._device = dense.device
        self._stream = ResidualStream(dense, family)
        self._depths = {name: shared_depth(dense, model, family) for name, model in models.items()}
        self._skippers = {name: LayerSkipper(model, family) for name, model in models.items()}

    @torch.no_grad()
    def logits(
        self, batch: Int64[Tensor, "_windows _tokens"]
    ) -> Iterator[tuple[str, Float[Tensor, "_windows _tokens _vocabulary"]]]:
        """The logits of each model in turn, in its dtype; those of one are made when they are asked for."""
        tokens = batch.to(self._device)
        shared = self._stream.read(tokens, sorted(set(self._depths.values())))
        for name, model in self._models.items():
            # Not kept in a name here: whoever asks decides how long they live.
            yield name, self._run(name, model, tokens, shared[self._depths[name]])

    def _run(self, name: str, model: PreTrainedModel, tokens: Tensor, state: Tensor) -> Tensor:
        with self._skippers[name].entering(self._depths[name], state):
            logits: Tensor = model(input_ids=tokens, use_cache=False).logits
        return logits
