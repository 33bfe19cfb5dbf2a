"""What scoring and calibrating cost, against one plain forward pass over the same tokens.

    python benchmarks/stages.py [--sequences 16] [--sequence-length 512]

Everything runs in this process, one after another, on the model of `make demo`. Ratios are of
seconds and of the peak resident memory above that of the loaded model.
"""

import argparse
from collections.abc import Callable

import torch

from ghosted_cli.request import cache_folder
from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.source import resolve
from ghosted_core.data import batches
from ghosted_core.meter import ProcessMeter
from ghosted_core.pipeline import Loaded
from ghosted_core.plan import Boundary
from ghosted_core.recovery.ghosted import GhostedSolver
from ghosted_core.spec import Ghosted, JobSpec
from ghosted_core.statistics import BoundaryStatistics, Feature, LayerSimilarity
from ghosted_core.texts import read_texts

BOUNDARY = Boundary(12, 19)


def load(sequences: int, length: int) -> Loaded:
    """The demo's model and text."""
    spec = JobSpec.model_validate(
        {
            "model": "smollm2-135m-instruct",
            "layers": 7,
            "calibration": {"sequences": sequences, "sequence_length": length, "held_out_sequences": 0},
            "evaluation": None,
        }
    )
    common = {"catalog": builtin_catalog(), "cache": cache_folder(None), "log": print}
    source = resolve(spec.model, hub_token=None, **common)
    model = load_model(source, dtype="auto", device="cpu")
    tokenizer = load_tokenizer(source)
    texts = read_texts(spec, tokenizer, vocab_size=model.config.vocab_size, **common)
    return Loaded(source, model, tokenizer, texts)


@torch.no_grad()
def forward(loaded: Loaded) -> None:
    """The whole model, head included, as transformers runs it."""
    for batch in batches(loaded.texts.calibration):
        loaded.model(input_ids=batch, use_cache=False)


def score(loaded: Loaded) -> None:
    """Cosines of all pairs of states."""
    stream, states = loaded.stream, range(loaded.stream.layer_count + 1)
    similarity = LayerSimilarity.empty(loaded.stream.layer_count)
    for batch in batches(loaded.texts.calibration):
        found = stream.read(batch, states)
        similarity.update([found[index] for index in states])


def calibrate(loaded: Loaded) -> BoundaryStatistics:
    """Sums at one boundary."""
    sums = BoundaryStatistics(GhostedSolver.request)
    for batch in batches(loaded.texts.calibration):
        found = loaded.stream.read(batch, [BOUNDARY.start, BOUNDARY.stop])
        entering, leaving = (found[index].flatten(0, 1) for index in (BOUNDARY.start, BOUNDARY.stop))
        sums.update({Feature.ENTERING: entering, Feature.LEAVING: leaving})
    return sums


def hold_everything(loaded: Loaded) -> torch.Tensor:
    """What the sums replace: all activations of the boundary kept, then one least-squares solve."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch in batches(loaded.texts.calibration):
        found = loaded.stream.read(batch, [BOUNDARY.start, BOUNDARY.stop])
        kept.append((found[BOUNDARY.start].flatten(0, 1), found[BOUNDARY.stop].flatten(0, 1)))
    entering, leaving = (torch.cat(part).double() for part in zip(*kept, strict=True))
    return torch.linalg.lstsq(entering, leaving - entering).solution


def calibrate_and_solve(loaded: Loaded) -> torch.Tensor:
    """The streamed way, up to the operator."""
    solver = GhostedSolver(Ghosted())
    return solver.solve(BOUNDARY, calibrate(loaded), BoundaryStatistics(solver.request)).correction


def measure(name: str, work: Callable[[Loaded], object], loaded: Loaded) -> tuple[str, float, int]:
    """Seconds and peak memory above that at the start."""
    meter = ProcessMeter(torch.device("cpu"))
    before = meter.peak_memory_bytes()
    work(loaded)
    return name, meter.seconds(), max(meter.peak_memory_bytes() - before, 0)


def main() -> None:
    """Print one row a task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--sequence-length", type=int, default=512)
    arguments = parser.parse_args()
    loaded = load(arguments.sequences, arguments.sequence_length)
    forward(loaded)
    tasks = (forward, score, calibrate, calibrate_and_solve, hold_everything)
    rows = [measure(task.__name__, task, loaded) for task in tasks]
    _, base_seconds, base_bytes = rows[0]
    print(f"{arguments.sequences} x {arguments.sequence_length} tokens, {torch.get_num_threads()} threads")
    for name, seconds, size in rows:
        print(
            f"{name:20} {seconds:7.1f} s  x{seconds / base_seconds:.2f}   "
            f"{size / 1e6:7.0f} MB  x{size / base_bytes:.2f}"
        )


if __name__ == "__main__":
    main()
