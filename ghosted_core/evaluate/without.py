"""What a model loses without each of its layers."""

from collections.abc import Callable, Collection, Iterable

from jaxtyping import Float, Int64
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.evaluate.perplexity import predicted_tokens, summary, window_losses
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import Family
from ghosted_core.model.skipping import LayerSkipper


class LossesWithoutLayers:
    """Leaves out one layer after another. The model is afterwards as it was."""

    def __init__(self, model: PreTrainedModel, family: Family) -> None:
        self._model = model
        self._skipper = LayerSkipper(model, family)
        self._stream = ResidualStream(model, family)

    def __call__(
        self,
        removed: Collection[int],
        candidates: Collection[int],
        batches: Iterable[Int64[Tensor, "_windows tokens"]],
        advance: Callable[[int], None],
    ) -> dict[int, float]:
        """For each of `candidates`, the mean NLL without it and the layers `removed`, in nats a token.

        The layers before a candidate run once for it and all that follow: about half the work of as
        many evaluations. One state of a batch is held at a time. `advance` is told of tokens: all
        for every candidate.
        """
        losses: dict[int, list[float]] = {layer: [] for layer in candidates}
        predicted = 0
        with self._skipper.without(removed):
            for batch in batches:
                self._run(batch, losses, advance)
                predicted += predicted_tokens(batch)
        return {layer: summary(found, predicted).nll for layer, found in losses.items()}

    def _run(self, batch: Tensor, losses: dict[int, list[float]], advance: Callable[[int], None]) -> None:
        tokens = batch.to(self._model.device)
        reached, state = 0, self._stream.read(tokens, [0])[0]
        for layer in sorted(losses):
            state = self._go_on(tokens, reached, layer, state)
            reached = layer
            # What entered the layer leaves it.
            with self._skipper.entering(layer + 1, state):
                losses[layer] += window_losses(self._model, tokens)
            advance(batch.numel())

    def _go_on(
        self, tokens: Tensor, start: int, stop: int, state: Float[Tensor, "windows tokens hidden"]
    ) -> Float[Tensor, "windows tokens hidden"]:
        """The state that enters layer `stop` if `state` enters layer `start`."""
        if start == stop:
            return state
        with self._skipper.entering(start, state):
            return self._stream.read(tokens, [stop])[stop]
