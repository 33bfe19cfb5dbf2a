"""About how long a job takes. Free of torch.

Counted are the multiplications of the model's passes over text and of the sums for the repair, and
the bytes that are read and written, at the assumed speeds below. Order of magnitude only.
"""

from dataclasses import dataclass

from ghosted_core.candidates import Candidates
from ghosted_core.estimate import PRODUCTS, Estimate, Sizes
from ghosted_core.spec import JobSpec

# Multiply-adds count as two. What a few CPU cores, and what one data-centre GPU, make of large products.
CPU_FLOPS, GPU_FLOPS = 5e10, 1e14
DISK_BYTES = 5e8
# Dense, pruned and repaired.
EVALUATED_MODELS = 3
# A gradient costs about two passes more.
BACKWARD = 3


@dataclass(frozen=True)
class Duration:
    """Floating-point operations of the whole job, bytes moved, and seconds at two assumed speeds."""

    operations: float
    moved_bytes: int
    cpu_seconds: float
    gpu_seconds: float


def duration(spec: JobSpec, sizes: Sizes, found: Candidates, expected: Estimate, cuts: int) -> Duration:
    """About what `spec` takes with a model of `sizes`."""
    tokens = spec.calibration.sequences * spec.calibration.sequence_length
    held_out = spec.calibration.held_out_sequences * spec.calibration.sequence_length
    passes = _scored_tokens(spec, found) + _evaluated_tokens(spec)
    fitted = 0 if spec.recovery.name == "none" else tokens + held_out
    passes += _trained_tokens(spec)
    products = PRODUCTS.get(spec.recovery.name, 0) * cuts * sizes.hidden_size**2
    operations = 2.0 * sizes.parameters * (passes + fitted) + 2.0 * products * fitted
    moved = expected.bytes_before + expected.disk.peak_bytes
    waiting = moved / DISK_BYTES
    return Duration(
        operations=operations,
        moved_bytes=moved,
        cpu_seconds=round(waiting + operations / CPU_FLOPS, 1),
        gpu_seconds=round(waiting + operations / GPU_FLOPS, 1),
    )


def _scored_tokens(spec: JobSpec, found: Candidates) -> int:
    calibration, strategy = spec.calibration, spec.strategy
    count = min(getattr(strategy, "sequences", None) or calibration.sequences, calibration.sequences)
    length = getattr(strategy, "sequence_length", None) or calibration.sequence_length
    tokens = count * min(length, calibration.sequence_length)
    match strategy.name:
        case "explicit" | "reverse" | "magnitude":
            return 0
        case "taylor":
            return BACKWARD * tokens
        case "perplexity":
            return len(found.choices) * tokens
        case "sleb":
            layers = len(found.choices)
            return sum(layers - done for done in range(spec.removal_count(layers + 2))) * tokens
        case _:
            return tokens


def _trained_tokens(spec: JobSpec) -> int:
    """The teacher's pass, and steps as if all layers took part: an upper bound."""
    finetune = spec.finetune
    if finetune is None:
        return 0
    length = finetune.sequence_length or spec.calibration.sequence_length
    test, steps = finetune.held_out_sequences * length, finetune.epochs * finetune.sequences * length
    # Frozen weights have no gradients, so a step takes two passes instead of three.
    return finetune.sequences * length + (1 + finetune.looks) * test + (BACKWARD - 1) * steps


def _evaluated_tokens(spec: JobSpec) -> int:
    if spec.evaluation is None:
        return 0
    evaluation = spec.evaluation
    length = evaluation.sequence_length or spec.calibration.sequence_length
    tokens = evaluation.windows * length + len(evaluation.prompts) * evaluation.new_tokens
    for corpus in evaluation.corpora:
        # How long a text is that is read to its end, nobody knows before: as much as another.
        windows = corpus.windows if isinstance(corpus.windows, int) else evaluation.windows
        tokens += windows * (corpus.sequence_length or length)
    return (EVALUATED_MODELS + (spec.finetune is not None)) * tokens
