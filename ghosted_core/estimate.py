"""What a job would take and leave, in bytes, from sizes and the spec alone. Free of torch.

Counted is what grows with model and text: weights, hidden states, sums, logits. Left out are the
interpreter with its libraries and what a single layer needs while it runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ghosted_core.batching import BATCH_TOKENS, CHUNK_POSITIONS, LOGIT_BYTES
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import OPERATORS, Evaluation, JobSpec

ITEM_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
FLOAT32, FLOAT64 = 4, 8

# Hidden x hidden matrices of sums a boundary; a repair that is not listed needs vectors only.
PRODUCTS: Mapping[str, int] = {"ghosted": 2, "replace_me": 2}
# Activations a token and boundary that a repair keeps on disk, in the model's dtype.
STORED_FEATURES: Mapping[str, int] = {"replace_me_cosine": 3}
# Logits of a part of the positions while training, and how often a tensor that trains is there: itself, in
# the model's dtype, its gradient, two moments, its best form.
LOGIT_PART_BYTES, TRAINED_COPIES = 1 << 26, 6
# Float64 copies of a batch at one boundary: two states, what is made of them, and that weighted.
WIDENED = 6


class Sizes(Protocol):
    """The sizes of a model; `describe.ModelDescription` has them."""

    @property
    def hidden_size(self) -> int:
        """Width of the stream, C."""

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""

    @property
    def dtype(self) -> str:
        """The dtype that 'auto' stands for."""

    @property
    def parameters(self) -> int:
        """All parameters, tied ones once."""

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """Parameters of each layer."""


@dataclass(frozen=True)
class Memory:
    """Bytes in use at a time, on the device of the job; `peak_bytes` is the most of any stage: a lower bound.

    `scoring_bytes`, `calibration_bytes`, `finetune_bytes` and `evaluation_bytes` come on top of
    `weights_bytes` in their stage; the statistics are part of calibration.
    """

    weights_bytes: int
    scoring_bytes: int
    statistics_bytes: int
    calibration_bytes: int
    evaluation_bytes: int
    finetune_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """Weights and the hungriest stage."""
        return self.weights_bytes + max(
            self.scoring_bytes, self.calibration_bytes, self.finetune_bytes, self.evaluation_bytes
        )


@dataclass(frozen=True)
class Disk:
    """Bytes of the checkpoint's weights, and of activations kept meanwhile.

    The checkpoint is written once, under a temporary name beside its place.
    """

    checkpoint_bytes: int
    scratch_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Both: scratch may lie on the same disk."""
        return self.checkpoint_bytes + self.scratch_bytes


@dataclass(frozen=True)
class Estimate:
    """Sizes before and after, in parameters and in bytes of `dtype`, and what the way there takes."""

    dtype: str
    parameters_before: int
    parameters_after: int
    operator_parameters: int
    bytes_before: int
    bytes_after: int
    memory: Memory
    disk: Disk


def estimate(spec: JobSpec, sizes: Sizes, plan: PruningPlan) -> Estimate:
    """What the job `spec` takes for the model of `sizes` if the layers of `plan` go."""
    dtype = sizes.dtype if spec.dtype == "auto" else spec.dtype
    item = ITEM_BYTES[dtype]
    cuts = len(plan.boundaries)
    operators = cuts * sizes.hidden_size**2 if spec.recovery.name in OPERATORS else 0
    after = sizes.parameters - sum(sizes.layer_parameters[i] for i in plan.removed) + operators
    statistics = _statistics(spec, sizes, cuts)
    return Estimate(
        dtype=dtype,
        parameters_before=sizes.parameters,
        parameters_after=after,
        operator_parameters=operators,
        bytes_before=sizes.parameters * item,
        bytes_after=after * item,
        memory=Memory(
            # The pruned and the repaired model share the source's weights.
            weights_bytes=(sizes.parameters + operators) * item,
            scoring_bytes=_scoring(spec, sizes, item),
            statistics_bytes=statistics,
            calibration_bytes=_calibration(spec, sizes, cuts, item) + statistics,
            evaluation_bytes=_evaluation(spec, sizes, item),
            finetune_bytes=_finetune(spec, sizes, cuts, item),
        ),
        disk=Disk(checkpoint_bytes=after * item, scratch_bytes=_scratch(spec, sizes, cuts, item)),
    )


def batch_tokens(length: int, count: int) -> int:
    """Tokens in the largest batch of `count` windows of `length`; see `data.batches`."""
    return length * min(count, max(1, BATCH_TOKENS // length))


def _looked_at(spec: JobSpec) -> tuple[int, int]:
    """Windows and their length that the criterion sees."""
    calibration, strategy = spec.calibration, spec.strategy
    count = getattr(strategy, "sequences", None) or calibration.sequences
    length = getattr(strategy, "sequence_length", None) or calibration.sequence_length
    return min(count, calibration.sequences), min(length, calibration.sequence_length)


def _scoring(spec: JobSpec, sizes: Sizes, item: int) -> int:
    states, width = len(sizes.layer_parameters) + 1, sizes.hidden_size
    count, length = _looked_at(spec)
    match spec.strategy.name:
        case "explicit" | "reverse" | "magnitude":
            return 0
        case "taylor":
            # Every state of the whole text, and one layer's weights and gradients, in float32.
            layer = max(sizes.layer_parameters)
            return states * count * length * width * FLOAT32 + 2 * layer * FLOAT32
        case "perplexity" | "sleb":
            return _logits(batch_tokens(length, count), sizes, item)
        case _:
            return states * batch_tokens(length, count) * width * item


def _statistics(spec: JobSpec, sizes: Sizes, cuts: int) -> int:
    sets = 2 if spec.calibration.held_out_sequences else 1
    return cuts * sets * PRODUCTS.get(spec.recovery.name, 0) * sizes.hidden_size**2 * FLOAT64


def _calibration(spec: JobSpec, sizes: Sizes, cuts: int, item: int) -> int:
    if spec.recovery.name == "none":
        return 0
    tokens = batch_tokens(spec.calibration.sequence_length, spec.calibration.sequences)
    return tokens * sizes.hidden_size * (2 * cuts * item + WIDENED * FLOAT64)


def _evaluation(spec: JobSpec, sizes: Sizes, item: int) -> int:
    if spec.evaluation is None:
        return 0
    # Those of the dense model stay while another's are compared with them.
    texts = 2 * _logits(_evaluation_batch(spec.evaluation, spec.calibration.sequence_length), sizes, item)
    if not spec.evaluation.tasks:
        return texts
    # The harness's process loads the model anew, and keeps logits and their logarithms.
    return max(texts, sizes.parameters * item + 2 * LOGIT_BYTES)


def _evaluation_batch(evaluation: Evaluation, usual: int) -> int:
    """Tokens in the largest batch of any text that is evaluated."""
    usual = evaluation.sequence_length or usual
    own = [(usual, evaluation.windows)] if evaluation.windows else []
    others = [(corpus.sequence_length or usual, corpus.windows) for corpus in evaluation.corpora]
    many = BATCH_TOKENS  # Windows of a text that is read to its end: enough for a full batch.
    texts = [*own, *((length, count if isinstance(count, int) else many) for length, count in others)]
    return max((batch_tokens(length, count) for length, count in texts), default=0)


def _logits(tokens: int, sizes: Sizes, item: int) -> int:
    return sizes.vocabulary_size * (tokens * item + CHUNK_POSITIONS * FLOAT32)


def _finetune(spec: JobSpec, sizes: Sizes, cuts: int, item: int) -> int:
    """What trains in float32 with gradient, two moments and its best form, and the logits of one part."""
    finetune = spec.finetune
    if finetune is None:
        return 0
    width, length = sizes.hidden_size, finetune.sequence_length or spec.calibration.sequence_length
    # At least: the inner width of a layer is not among the sizes, and four times the width is usual.
    matrices = finetune.trains_operators + 4 * finetune.trains_down_proj
    logits = min(LOGIT_PART_BYTES, finetune.batch_size * length * sizes.vocabulary_size * FLOAT32)
    batch = finetune.batch_size * length * width * item
    return cuts * matrices * width**2 * FLOAT32 * TRAINED_COPIES + 4 * logits + 2 * batch


def _scratch(spec: JobSpec, sizes: Sizes, cuts: int, item: int) -> int:
    # One after the other: the repair's activations are gone when training begins.
    return max(_repair_scratch(spec, sizes, cuts, item), _taught(spec, sizes, item))


def _taught(spec: JobSpec, sizes: Sizes, item: int) -> int:
    """A state a token, and of the teacher's answer tokens and logarithms."""
    finetune = spec.finetune
    if finetune is None:
        return 0
    length = finetune.sequence_length or spec.calibration.sequence_length
    kept = min(finetune.top_k, sizes.vocabulary_size)
    tokens = (finetune.sequences + finetune.held_out_sequences) * length
    return tokens * (sizes.hidden_size * item + 2 * FLOAT32 * kept + 2 * FLOAT32)


def _repair_scratch(spec: JobSpec, sizes: Sizes, cuts: int, item: int) -> int:
    calibration = spec.calibration
    tokens = (calibration.sequences + calibration.held_out_sequences) * calibration.sequence_length
    features = STORED_FEATURES.get(spec.recovery.name, 0)
    return math.prod((tokens, sizes.hidden_size, item, features, cuts))
