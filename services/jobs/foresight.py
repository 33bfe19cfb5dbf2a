"""What a job would do and need, from the spec and the model's raw config.json alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ghosted_core.candidates import Candidates, candidates
from ghosted_core.choices import Choices
from ghosted_core.duration import Duration, duration
from ghosted_core.errors import InvalidSpecError
from ghosted_core.estimate import Estimate, estimate
from ghosted_core.plan import PruningPlan
from ghosted_core.sizes import ConfigSizes, config_sizes
from ghosted_core.spec import JobSpec

# Of more than this share of the layers, no repair brings much back.
MUCH = 0.5
NEEDS_SAMPLES = frozenset({"ghosted", "replace_me"})


@dataclass(frozen=True)
class Foreseen:
    """`layers` are the candidates; the estimate is for as many separate cuts as there can be."""

    sizes: ConfigSizes
    count: int
    layers: Candidates
    plan: PruningPlan
    estimate: Estimate
    duration: Duration
    # Whether the layers to remove are what an earlier job found.
    from_earlier: bool = False


@dataclass(frozen=True)
class Warned:
    """Something that does not prevent the job, and that its user may not have meant."""

    code: str
    detail: str
    field: str | None = None


def foresee(spec: JobSpec, config: Mapping[str, Any]) -> Foreseen | None:
    """What `spec` does to a model of that configuration; None where it cannot be counted.

    Raises:
        InvalidSpecError: what is asked for does not fit this model.
    """
    sizes = config_sizes(config)
    if sizes is None:
        return None
    count = spec.removal_count(sizes.layer_count)
    _check_fit(spec, sizes, count)
    layers = candidates(spec.strategy, count, sizes.layer_count)
    plan = PruningPlan.from_removed(layers.largest(count), layer_count=sizes.layer_count)
    expected = estimate(spec, sizes, plan)
    time = duration(spec, sizes, layers, expected, len(plan.boundaries))
    return Foreseen(sizes, count, layers, plan, expected, time)


def with_earlier_choice(spec: JobSpec, found: Foreseen, earlier: Choices | None) -> Foreseen:
    """`found` with the layers that the strategy removes, if they were not certain and `earlier` tells."""
    if earlier is None or found.layers.removed is not None:
        return found
    removed = earlier.of(spec.strategy, found.count, found.sizes.layer_count)
    if removed is None:
        return found
    layers = replace(found.layers, removed=removed)
    plan = PruningPlan.from_removed(removed, layer_count=found.sizes.layer_count)
    expected = estimate(spec, found.sizes, plan)
    time = duration(spec, found.sizes, layers, expected, len(plan.boundaries))
    return replace(found, layers=layers, plan=plan, estimate=expected, duration=time, from_earlier=True)


def _check_fit(spec: JobSpec, sizes: ConfigSizes, count: int) -> None:
    if count >= sizes.layer_count:
        raise InvalidSpecError(
            f"'layers' is {count}, but the model has only {sizes.layer_count} layers.",
            advice=f"Remove between 1 and {sizes.layer_count - 1} layers.",
            field="layers",
        )
    field, wanted = spec.longest_window
    if sizes.max_positions is not None and wanted > sizes.max_positions:
        raise InvalidSpecError(
            f"'sequence_length' is {wanted}, but the model reads at most {sizes.max_positions} tokens.",
            advice=f"Set 'sequence_length' to {sizes.max_positions} or less.",
            field=field,
        )


def warnings_of(spec: JobSpec, found: Foreseen) -> list[Warned]:
    """What the user may want to think over."""
    warned: list[Warned] = []
    if found.count > MUCH * found.sizes.layer_count:
        detail = f"{found.count} of {found.sizes.layer_count} layers go; expect a model that is of no use"
        warned.append(Warned("many_layers", detail, "layers"))
    removed = found.layers.removed or ()
    for index, name in ((0, "first"), (found.sizes.layer_count - 1, "last")):
        if index in removed:
            detail = f"the {name} layer goes, which costs more quality than others"
            warned.append(Warned("outer_layer", detail, "strategy"))
    tokens = spec.calibration.sequences * spec.calibration.sequence_length
    if spec.recovery.name in NEEDS_SAMPLES and tokens < found.sizes.hidden_size:
        detail = (
            f"{tokens} calibration tokens do not determine an operator of width {found.sizes.hidden_size}"
        )
        warned.append(Warned("few_tokens", detail, "calibration"))
    return warned
