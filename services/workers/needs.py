"""What a job will take of its worker, from the spec and the model's sizes. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from ghosted_core.errors import InvalidSpecError
from ghosted_core.estimate import Sizes, estimate
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import CatalogModel, Explicit, JobSpec

# Criteria that remove neighbouring layers, which leave one cut. All others may leave one a layer.
CONTIGUOUS = frozenset({"streamline", "streamline_channel", "angular", "reverse"})
# The estimate counts what grows with model and text. On top come the interpreter with its libraries (or the
# device's context), and what one layer needs while it runs.
FIXED_MEMORY_BYTES = 512 << 20
MARGIN = 1.1


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a model, as `ghosted_core.estimate` asks for them."""

    hidden_size: int
    vocabulary_size: int
    dtype: str
    parameters: int
    layer_parameters: tuple[int, ...]


@dataclass(frozen=True)
class Needs:
    """Bytes of memory (of the device that the job runs on) and of scratch disk; None is not known."""

    memory_bytes: int | None = None
    disk_bytes: int | None = None


UNKNOWN = Needs()
# Of the catalog's models. A GGUF file is widened when it is read.
CATALOG_SIZES: Mapping[str, ModelSizes] = {
    "smollm2-135m-instruct": ModelSizes(576, 49_152, "float32", 134_515_008, (3_540_096,) * 30),
}


def catalog_needs(spec: JobSpec) -> Needs:
    """What the job takes if its model is one of the catalog, else unknown."""
    model = spec.model
    sizes = CATALOG_SIZES.get(model.alias) if isinstance(model, CatalogModel) else None
    return UNKNOWN if sizes is None else needs_of(spec, sizes)


def needs_of(spec: JobSpec, sizes: Sizes) -> Needs:
    """What the job takes for a model of these sizes; unknown if the spec does not fit them.

    The scratch disk holds the checkpoint as it was made and as it was read back.
    """
    try:
        plan = _likely_plan(spec, len(sizes.layer_parameters))
    except InvalidSpecError:
        # The job will be refused, by the code that says it best.
        return UNKNOWN
    expected = estimate(spec, sizes, plan)
    disk = 2 * expected.disk.checkpoint_bytes + expected.disk.scratch_bytes
    memory = int(expected.memory.peak_bytes * MARGIN) + FIXED_MEMORY_BYTES
    return Needs(memory, int(disk * MARGIN))


def _likely_plan(spec: JobSpec, layer_count: int) -> PruningPlan:
    """A plan with as many cuts as the criterion may leave.

    Raises:
        InvalidSpecError: the model has too few layers.
    """
    if isinstance(spec.strategy, Explicit):
        return PruningPlan.from_removed(spec.strategy.indices, layer_count=layer_count)
    count = spec.removal_count(layer_count)
    step = 1 if spec.strategy.name in CONTIGUOUS or 2 * count > layer_count else 2
    return PruningPlan.from_removed(range(0, count * step, step), layer_count=layer_count)
