"""How fast a job's models are on the machine at hand, and how much memory they take there."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.checkpoint.write import unique_tensors
from ghosted_core.evaluate.memory import Peak, PeakRequest, peak_of
from ghosted_core.evaluate.speed import Speed, speeds
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.recorder import Logged, Meter, MetricMeasured, Recorder, Stage, stage
from ghosted_core.spec import Latency

# What a model does that cannot run in this way, or for which memory does not suffice.
_FAULTS = (RuntimeError, TypeError, ValueError, LookupError)


def measure_latency(
    latency: Latency,
    models: Mapping[str, PreTrainedModel],
    text: Int64[Tensor, "windows tokens"] | None,
    recorder: Recorder,
    meter: Meter,
) -> tuple[MetricMeasured, ...]:
    """Tokens a second, time to the first token and bytes of the weights, of each of `models` in turns.

    The prompt is the beginning of `text`. What cannot be measured is logged, and fails nothing.
    """
    prompt = prompt_for(latency, next(iter(models.values())), text)
    if prompt is None:
        recorder.record(Logged("Latency was not measured: the model reads too few tokens.", "warning"))
        return ()
    total = len(models) * (latency.rounds + 1)
    with stage(Stage.EVALUATE, recorder, meter, unit="speed runs", total=total) as scope:
        try:
            found = speeds(
                models,
                prompt,
                new_tokens=latency.new_tokens,
                rounds=latency.rounds,
                advance=scope.advance,
            )
        except _FAULTS as error:
            recorder.record(Logged(f"Latency was not measured ({type(error).__name__}).", "warning"))
            return ()
    return _told((one for name in found for one in _metrics(name, found[name], models[name])), recorder)


def measure_memory(
    latency: Latency,
    models: Mapping[str, PreTrainedModel],
    subject: Subject,
    recorder: Recorder,
    meter: Meter,
) -> tuple[MetricMeasured, ...]:
    """The most memory that each of `models` takes while it works, in a fresh process each.

    `subject` says how those make the same models. What cannot be measured is logged, and fails nothing.
    """
    found = []
    with stage(Stage.EVALUATE, recorder, meter, unit="models", total=len(models)) as scope:
        for name, model in models.items():
            one = subject.model_copy(update={"variants": (name,)})
            prompt = prompt_for(latency, model, None)
            length = 1 if prompt is None else prompt.shape[1]
            peak = peak_of(PeakRequest(subject=one, prompt_tokens=length, new_tokens=latency.new_tokens))
            if peak is None:
                recorder.record(Logged(f"The memory of the {name} model was not measured.", "warning"))
            else:
                found.append(_memory(name, peak, model))
            scope.advance(1)
    return _told(found, recorder)


def prompt_for(
    latency: Latency, model: PreTrainedModel, text: Int64[Tensor, "_windows _tokens"] | None
) -> Int64[Tensor, "1 _prompt"] | None:
    """The beginning of `text`, or of the vocabulary where it is too short, as long as the model reads.

    None: it reads no more than what is to be decoded.
    """
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None) or latency.prompt_tokens + latency.new_tokens
    length = min(latency.prompt_tokens, limit - latency.new_tokens)
    if length < 1:
        return None
    if text is not None and text.numel() >= length:
        return text.flatten()[None, :length]
    tokens: Tensor = torch.arange(length) % config.vocab_size
    return tokens[None]


def weight_bytes(model: PreTrainedModel) -> int:
    """Of all tensors, tied ones once."""
    return sum(tensor.nbytes for tensor in unique_tensors(model).values())


def circumstances(model: PreTrainedModel) -> dict[str, Any]:
    """On what a model runs, as plain JSON values."""
    device = model.device
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    dtype = str(model.dtype).removeprefix("torch.")
    return {"device": named, "threads": torch.get_num_threads(), "dtype": dtype}


def _told(found: Iterator[MetricMeasured] | list[MetricMeasured], recorder: Recorder) -> tuple[Any, ...]:
    metrics = tuple(found)
    for metric in metrics:
        recorder.record(metric)
    return metrics


def _metrics(name: str, speed: Speed, model: PreTrainedModel) -> Iterator[MetricMeasured]:
    sizes = {
        "rounds": speed.rounds,
        "prompt_tokens": speed.prompt_tokens,
        "new_tokens": speed.new_tokens,
    }
    for metric, value, spread in (
        ("prefill_tokens_per_second", speed.prefill, speed.prefill_range),
        ("first_token_seconds", speed.first_token_seconds, speed.first_token_range),
        ("decode_tokens_per_second", speed.decode, speed.decode_range),
    ):
        detail = circumstances(model) | sizes | {"range": list(spread)}
        yield MetricMeasured(f"{metric}_{name}", value, detail)
    yield MetricMeasured(f"weight_bytes_{name}", float(weight_bytes(model)), circumstances(model))


def _memory(name: str, peak: Peak, model: PreTrainedModel) -> MetricMeasured:
    detail = circumstances(model) | {"what": peak.what, "without_model_bytes": peak.without_model_bytes}
    return MetricMeasured(f"peak_memory_bytes_{name}", float(peak.bytes), detail)
