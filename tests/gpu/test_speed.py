"""What calibration and the solve cost on this GPU, printed; random weights in bfloat16."""

import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ghosted_core.meter import ProcessMeter
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.plan import Boundary
from ghosted_core.recovery.ghosted import GhostedSolver
from ghosted_core.spec import Ghosted
from ghosted_core.statistics import BoundaryStatistics, Feature

pytestmark = pytest.mark.gpu

BOUNDARY = Boundary(1, 3)
WINDOWS, LENGTH, WINDOWS_A_BATCH = 16, 512, 4
VOCABULARY = 1024


def model_of(hidden: int, device: torch.device) -> PreTrainedModel:
    """Four random Llama layers of that width."""
    heads = hidden // 64
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=4,
        num_attention_heads=heads,
        num_key_value_heads=heads,
    )
    torch.manual_seed(0)
    with device:
        model = LlamaForCausalLM(config)
    model.to(torch.bfloat16)
    model.train(mode=False)
    return model


def calibrate(stream: ResidualStream, tokens: torch.Tensor) -> BoundaryStatistics:
    """The sums at the boundary."""
    statistics = BoundaryStatistics(GhostedSolver.request)
    for batch in tokens.split(WINDOWS_A_BATCH):
        found = stream.read(batch, [BOUNDARY.start, BOUNDARY.stop])
        entering, leaving = found[BOUNDARY.start], found[BOUNDARY.stop]
        statistics.update({Feature.ENTERING: entering, Feature.LEAVING: leaving})
    return statistics


@pytest.mark.parametrize("hidden", [576, 1024, 2048, 4096])
def test_calibration_and_solve_are_measured(
    gpu: torch.device, hidden: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model of that width is calibrated and solved on the GPU, and the operator explains the shift."""
    model = model_of(hidden, gpu)
    stream = ResidualStream(model, family_of("llama"))
    tokens = torch.randint(VOCABULARY, (WINDOWS, LENGTH), generator=torch.Generator().manual_seed(1)).to(gpu)
    calibrate(stream, tokens[:1])  # The first pass loads kernels.
    meter = ProcessMeter(gpu)
    statistics = calibrate(stream, tokens)
    seconds = meter.seconds()
    solver = GhostedSolver(Ghosted())
    operator = solver.solve(BOUNDARY, statistics, BoundaryStatistics(solver.request))
    solve_seconds, peak = meter.seconds() - seconds, meter.peak_memory_bytes()
    with capsys.disabled():
        sys.stdout.write(
            f"\nhidden {hidden}: {tokens.numel() / seconds:,.0f} tokens/s, "
            f"solve {solve_seconds:.2f} s, peak memory {peak / 1e9:.2f} GB\n"
        )
    assert operator.correction.device.type == gpu.type
    assert bool(operator.correction.isfinite().all())
    assert operator.report.relative_residual < 1
