"""What the loss makes of each layer's weights, with the gradients of one layer in memory at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from transformers import PreTrainedModel

from ghosted_core.errors import NonFiniteError
from ghosted_core.model.families import Family
from ghosted_core.model.skipping import LayerSkipper

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def weight_matrices(layer: nn.Module) -> dict[str, Tensor]:
    """The layer's parameters of two or more dimensions: linear maps and experts, no norms or biases."""
    return {name: tensor.detach() for name, tensor in layer.named_parameters() if tensor.dim() > 1}


def weight_magnitude(layer: nn.Module) -> float:
    """Sum of |W| over the layer's weight matrices, in float64."""
    return sum(float(matrix.abs().sum(dtype=torch.float64)) for matrix in weight_matrices(layer).values())


def taylor_importance(
    model: PreTrainedModel,
    family: Family,
    batches: Sequence[Int64[Tensor, "_windows tokens"]],
    advance: Callable[[int], None],
) -> tuple[float, ...]:
    """For each layer the sum over its weight matrices of |W dL/dW|.

    L is the mean over all windows of the mean negative log-likelihood of the predicted tokens.
    Gradients keep their sign while they are added up over batches. Everything is computed in
    float32, whatever the model's dtype. `advance(1)` is called 2 x layers times.

    Forward runs layer by layer over all batches and keeps each layer's input; backward walks back,
    runs each layer once more and frees its gradients before the next. In memory at a time: the
    weights and gradients of one layer in float32, its activations for one batch, and (layers + 1) x
    tokens x hidden floats. The model's own weights are never differentiated, so nothing of it
    changes.

    Raises:
        NonFiniteError: a gradient is infinite or not a number.
    """
    wide = _WideModel(model, family)
    count = len(wide.layers)
    opened = [wide.open(batch.to(model.device)) for batch in batches]
    states = [[one.state for one in opened]]
    with torch.no_grad():
        for index in range(count):
            weights = wide.weights(index)
            states.append([wide.run(index, weights, x, o) for x, o in zip(states[-1], opened, strict=True)])
            advance(1)
    windows = sum(len(one.tokens) for one in opened)
    upstream = [wide.loss_gradient(x, o) / windows for x, o in zip(states.pop(), opened, strict=True)]
    importance = []
    for index in reversed(range(count)):
        score, upstream = _walk_back(wide, index, states.pop(), opened, upstream)
        importance.append(score)
        advance(1)
    return tuple(reversed(importance))


@dataclass(frozen=True)
class _Opened:
    """A batch on its way into the layers: tokens, x_0, and what each layer is given besides the state."""

    tokens: Tensor
    state: Tensor
    arguments: tuple[Arguments, ...]


class _WideModel:
    """A model as it would be in float32; of the layers' weights, one layer's are widened at a time."""

    def __init__(self, model: PreTrainedModel, family: Family) -> None:
        self.model = model
        self.decoder = model.get_submodule(family.decoder)
        self.norm = model.get_submodule(family.final_norm)
        self.skipper = LayerSkipper(model, family)
        self.layers = self.skipper.layers
        prefix = family.layers + "."
        self.rest = {
            name: tensor.detach().float()
            for name, tensor in model.named_parameters()
            if not name.startswith(prefix)
        }
        inside = family.decoder + "."
        self.decoders_rest = {
            name.removeprefix(inside): tensor for name, tensor in self.rest.items() if name.startswith(inside)
        }

    @torch.no_grad()
    def open(self, tokens: Int64[Tensor, "windows tokens"]) -> _Opened:
        """The batch up to the first layer, and what the decoder gives to each layer."""
        heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def listen(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            heard.append((args, kwargs))

        with self.skipper.without(range(len(self.layers))), _pre_hooks(self.layers, listen):
            # The decoder alone: the head's answers to embeddings are of no use, and large.
            functional_call(self.decoder, self.decoders_rest, (), _plain(tokens))
        return _Opened(tokens, _state_of(heard[0]), tuple(_without_state(one) for one in heard))

    def weights(self, index: int) -> dict[str, Tensor]:
        """All parameters of a layer in float32, apart from the model's own as far as gradients go."""
        return {name: tensor.detach().float() for name, tensor in self.layers[index].named_parameters()}

    def run(self, index: int, weights: dict[str, Tensor], state: Tensor, opened: _Opened) -> Tensor:
        """The layer's output for a batch whose state before it is `state`."""
        args, kwargs = opened.arguments[index]
        answer = functional_call(self.layers[index], weights, (state, *args), kwargs)
        output: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return output

    def loss_gradient(
        self, last: Float[Tensor, "windows tokens hidden"], opened: _Opened
    ) -> Float[Tensor, "windows tokens hidden"]:
        """d/dx_L of the sum over windows of each one's loss; window by window, for logits are wide."""
        gradients: list[Tensor] = []
        for window in range(len(opened.tokens)):
            tokens = opened.tokens[window : window + 1]
            state = last[window : window + 1].detach().requires_grad_()
            with torch.enable_grad():
                loss = functional.cross_entropy(self._logits(state, tokens)[0, :-1], tokens[0, 1:])
            gradients += torch.autograd.grad(loss, [state])
        return torch.cat(gradients)

    def _logits(self, state: Tensor, tokens: Tensor) -> Tensor:
        """Final norm and head as the model itself applies them, to `state` in place of its own."""

        def replace(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
            rest, named = _without_state((args, kwargs))
            return (state, *rest), named

        with self.skipper.without(range(len(self.layers))), _pre_hooks([self.norm], replace):
            logits: Tensor = functional_call(self.model, self.rest, (), _plain(tokens)).logits
        return logits


@torch.enable_grad()
def _walk_back(
    wide: _WideModel, index: int, states: Sequence[Tensor], opened: Sequence[_Opened], upstream: list[Tensor]
) -> tuple[float, list[Tensor]]:
    """The layer's score, and the gradients of the loss for its inputs from those for its outputs."""
    weights = wide.weights(index)
    matrices = {name: weights[name].requires_grad_() for name in weight_matrices(wide.layers[index])}
    passed = []
    for one, state, gradient in zip(opened, states, upstream, strict=True):
        entering = state.detach().requires_grad_()
        torch.autograd.backward(wide.run(index, weights, entering, one), gradient)
        passed.append(_gradient(entering))
    return _score(index, matrices), passed


def _score(index: int, matrices: dict[str, Tensor]) -> float:
    # An expert that no token went to has no gradient: its weights do not matter to this text.
    used = [matrix for matrix in matrices.values() if matrix.grad is not None]
    score = sum(
        float((matrix.detach() * _gradient(matrix)).abs().sum(dtype=torch.float64)) for matrix in used
    )
    if not torch.isfinite(torch.tensor(score)):
        raise NonFiniteError(f"The gradients of layer {index} are not all finite.")
    return score


def _gradient(tensor: Tensor) -> Tensor:
    return tensor.grad if tensor.grad is not None else torch.zeros_like(tensor)


@contextmanager
def _pre_hooks(modules: Sequence[nn.Module] | nn.ModuleList, hook: Callable[..., Any]) -> Iterator[None]:
    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _plain(tokens: Tensor) -> dict[str, Any]:
    return {"input_ids": tokens, "use_cache": False}


def _state_of(given: Arguments) -> Tensor:
    args, kwargs = given
    state: Tensor = args[0] if args else kwargs["hidden_states"]
    return state


def _without_state(given: Arguments) -> Arguments:
    args, kwargs = given
    return args[1:], {name: value for name, value in kwargs.items() if name != "hidden_states"}
