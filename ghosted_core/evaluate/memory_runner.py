"""The process that measures a model's memory: `python -m ghosted_core.evaluate.memory_runner`."""

import gc
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ghosted_core.evaluate.child import REQUEST, end_with, own_stdin, own_stdout
from ghosted_core.evaluate.memory import Peak, PeakRequest
from ghosted_core.evaluate.speed import take_turn
from ghosted_core.evaluate.task_subjects import load_subject
from ghosted_core.meter import ProcessMeter, resident_bytes
from ghosted_core.network import forbid_network

ON_GPU = "highest memory allocated by torch on the GPU, in a process of its own"
ON_CPU = "highest resident set of a process of its own, after loading"


def measure(request: PeakRequest) -> Peak:
    """Load the model, forget what loading took, let it work."""
    device = torch.device(request.subject.device)
    is_gpu = device.type == "cuda"
    before = 0 if is_gpu else resident_bytes()
    (variant,) = request.subject.variants
    model = load_subject(request.subject)[0][variant]
    _let_go_of_the_rest(model)
    vocabulary = model.config.get_text_config().vocab_size
    prompt = (torch.arange(request.prompt_tokens) % vocabulary)[None]
    meter = ProcessMeter(device)
    take_turn(model, prompt, request.new_tokens)
    what = ON_GPU if is_gpu else ON_CPU
    return Peak(bytes=meter.peak_memory_bytes(), without_model_bytes=before, what=what)


def _let_go_of_the_rest(model: PreTrainedModel) -> None:
    """Nothing is in memory that `model` does not need.

    Of a job, the unpruned model was loaded first. Its tensors may all be parts of one mapped file, which
    stays as long as any of them does.
    """
    if model.device.type == "cpu":
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data = tensor.data.clone()
    gc.collect()


def main() -> None:
    """Measure what the working folder's request asks for, as long as stdin is open.

    Whatever prints meanwhile prints to stderr.
    """
    forbid_network()
    answer = own_stdout()
    end_with(own_stdin())
    request = PeakRequest.model_validate_json(Path(REQUEST).read_bytes())
    answer.write(measure(request).model_dump_json())
    answer.flush()


if __name__ == "__main__":
    main()
