"""Tokens a second of several models, measured in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Speed:
    """Median over rounds of tokens a second, and the slowest and fastest round.

    Prefill reads a prompt and makes the logits of its last token; decoding makes one token after
    another with the cache of that prompt. One sequence at a time. `first_token_seconds` are what the
    prompt takes, the median and the fastest and slowest round.
    """

    prefill: float
    prefill_range: tuple[float, float]
    decode: float
    decode_range: tuple[float, float]
    first_token_seconds: float
    first_token_range: tuple[float, float]
    rounds: int
    prompt_tokens: int
    new_tokens: int


@torch.no_grad()
def speeds(
    models: Mapping[str, PreTrainedModel],
    prompt: Int64[Tensor, "1 tokens"],
    *,
    new_tokens: int,
    rounds: int,
    advance: Callable[[int], None],
) -> dict[str, Speed]:
    """The speed of each model, by name, on the same prompt.

    In each round every model has its turn, in alternating order, so that what else the machine does
    meets all of them. A round before the first is not counted. `advance(1)` is called after each turn,
    `len(models) * (rounds + 1)` times in all.
    """
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    names = list(models)
    for turn in range(rounds + 1):
        for name in names if turn % 2 else reversed(names):
            seconds[name].append(take_turn(models[name], prompt, new_tokens))
            advance(1)
    return {name: _speed(taken[1:], prompt.shape[1], new_tokens) for name, taken in seconds.items()}


@torch.no_grad()
def take_turn(
    model: PreTrainedModel, prompt: Int64[Tensor, "1 tokens"], new_tokens: int
) -> tuple[float, float]:
    """Seconds for the prompt, up to its first answer, and for the `new_tokens` after it."""
    tokens = prompt.to(model.device)
    start = _now(model.device)
    output = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
    middle = _now(model.device)
    # Releases of transformers differ in what they call it.
    cache = "cache" if "cache" in output else "past_key_values"
    for _ in range(new_tokens):
        following = output.logits[:, -1:].argmax(dim=-1)
        output = model(input_ids=following, use_cache=True, **{cache: output[cache]})
    return middle - start, _now(model.device) - middle


def _now(device: torch.device) -> float:
    """The time once all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _speed(seconds: list[tuple[float, float]], prompt_tokens: int, new_tokens: int) -> Speed:
    prefill = [prompt_tokens / first for first, _ in seconds]
    decode = [new_tokens / second for _, second in seconds]
    first = [first for first, _ in seconds]
    return Speed(
        prefill=statistics.median(prefill),
        prefill_range=(min(prefill), max(prefill)),
        decode=statistics.median(decode),
        decode_range=(min(decode), max(decode)),
        first_token_seconds=statistics.median(first),
        first_token_range=(min(first), max(first)),
        rounds=len(seconds),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
    )
