"""The operator of a checkpoint by itself, against one bare product of the same shape and dtype.

    python benchmarks/latency.py [--device cpu|cuda] [--rounds N] [--threads N] [--clock wall|cpu]

`BoundaryOperator` of the code file that checkpoints carry, x + x M, and torch.nn.functional.linear with
a C x C matrix and no bias have their turns in every round, in alternating order. Printed: the median of
the rounds' ratios, and the tenth and ninetieth percentile. The promise is a median of at most 1.2.
On a processor that others use too, --clock cpu with one thread says more: it counts the time in which this
program ran.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from ghosted_core.checkpoint.modeling_ghosted import BoundaryOperator

WIDTHS = (576, 2048, 4096)
TOKENS = {"decode": 1, "prefill": 512}
DTYPES = (torch.float32, torch.bfloat16)
PROMISED = 1.2
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
WARM_UP = 5
# A round lasts about so long on each side: far longer than reading the clock takes.
ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Ratio:
    """Median and spread over rounds of (seconds of the operator) / (seconds of the bare product)."""

    median: float
    low: float
    high: float
    bare_seconds: float


@torch.no_grad()
def measure(
    width: int, tokens: int, dtype: torch.dtype, device: torch.device, rounds: int, clock: Clock
) -> Ratio:
    """The ratio for one shape."""
    generator = torch.Generator().manual_seed(0)
    operator = BoundaryOperator(width)
    operator.correction.data = torch.randn(width, width, generator=generator) / width
    operator.to(device=device, dtype=dtype).lay_out()
    rows = torch.randn(1, tokens, width, generator=generator).to(device=device, dtype=dtype)
    # As a projection of the model would hold it.
    bare = torch.randn(width, width, generator=generator).to(device=device, dtype=dtype)
    sides: dict[str, Callable[[], torch.Tensor]] = {
        "operator": lambda: operator(rows),
        "bare": lambda: functional.linear(rows, bare),
    }
    repeats = max(1, int(ROUND_SECONDS / _seconds(sides["bare"], WARM_UP, device, clock)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in sides if turn % 2 else reversed(sides):
            found[name].append(_seconds(sides[name], repeats, device, clock))
    ratios = sorted(a / b for a, b in list(zip(found["operator"], found["bare"], strict=True))[1:])
    return Ratio(
        median=statistics.median(ratios),
        low=ratios[len(ratios) // 10],
        high=ratios[-1 - len(ratios) // 10],
        bare_seconds=statistics.median(found["bare"][1:]),
    )


def _seconds(run: Callable[[], torch.Tensor], repeats: int, device: torch.device, clock: Clock) -> float:
    """Of one run, the mean of several."""
    started = _now(device, clock)
    for _ in range(repeats):
        run()
    return (_now(device, clock) - started) / repeats


def _now(device: torch.device, clock: Clock) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock()


def main() -> None:
    """Print a line a shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    threads, release = torch.get_num_threads(), torch.__version__
    print(
        f"{device}, {threads} threads, {arguments.clock} clock, PyTorch {release}, {arguments.rounds} rounds"
    )
    print("| C | tokens | dtype | operator / bare product | 10 % - 90 % | bare product, microseconds |")
    print("|---|---|---|---|---|---|")
    for width in WIDTHS:
        for kind, tokens in TOKENS.items():
            for dtype in DTYPES:
                found = measure(width, tokens, dtype, device, arguments.rounds, CLOCKS[arguments.clock])
                mark = "" if found.median <= PROMISED else " (!)"
                print(
                    f"| {width} | {tokens} ({kind}) | {str(dtype).removeprefix('torch.')} | "
                    f"{found.median:.2f}{mark} | {found.low:.2f} - {found.high:.2f} | "
                    f"{found.bare_seconds * 1e6:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
