"""What a job would do, found out without writing anything."""

from dataclasses import dataclass
from pathlib import Path

import torch

from ghosted_core.checkpoint.load import load_config
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.criteria import Evidence, Findings, LayerScores, criterion_for, plan_of
from ghosted_core.data import Windows
from ghosted_core.describe import ModelDescription, describe
from ghosted_core.estimate import Estimate, estimate
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.families import family_of
from ghosted_core.pipeline import check_fit
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import Stage, stage
from ghosted_core.recovery import check_applicable
from ghosted_core.room import Room, least_estimate, room_on, shortages
from ghosted_core.scoring import score_layers
from ghosted_core.spec import JobSpec
from ghosted_core.workplace import Workplace


@dataclass(frozen=True)
class Preview:
    """The model, the layers that would go with the reasons, and what that takes and leaves.

    `room` is what was free before; `shortages` says in a sentence each what will not fit.
    """

    model: ModelDescription
    scores: LayerScores
    plan: PruningPlan
    estimate: Estimate
    room: Room
    shortages: tuple[str, ...]


def preview(spec: JobSpec, place: Workplace, out: Path) -> Preview:
    """What `compress` would do of `spec` if it were to write `out`.

    What cannot fit whichever layers go is logged before a weight is read. A criterion that needs
    nothing of the model is asked without a weight being read, one that needs only weights without a
    text.

    Raises:
        GhostedError: as `compress`, as far as it comes to light before a layer is removed.
    """
    source = place.source(spec.model)
    config = load_config(source)
    check_fit(spec, config)
    description = describe(source, config)
    # Before the model is in memory here.
    room = room_on(place.device, out)
    for sentence in shortages(least_estimate(spec, description), room):
        place.log(sentence)
    scores = _scores(spec, source, description.layer_count, place)
    plan = plan_of(scores, description.layer_count)
    check_applicable(spec.recovery, family_of(config.model_type), plan)
    estimated = estimate(spec, description, plan)
    return Preview(description, scores, plan, estimated, room, shortages(estimated, room))


def _scores(spec: JobSpec, source: ModelSource, layer_count: int, place: Workplace) -> LayerScores:
    criterion = criterion_for(spec.strategy)
    if criterion.evidence is Evidence.NOTHING:
        return criterion.choose(spec.removal_count(layer_count), layer_count, Findings())
    reads_text = criterion.evidence is not Evidence.WEIGHTS
    meter = ProcessMeter(torch.device(place.device))
    with stage(Stage.LOAD, place.recorder, meter, unit="steps", total=1 + reads_text) as scope:
        model = place.model(source, spec.dtype)
        scope.advance(1)
        windows = place.calibration(spec, source, model, scope) if reads_text else _no_text()
    return score_layers(spec, model, windows, place.recorder, meter)


def _no_text() -> Windows:
    return Windows(torch.empty(0, 0, dtype=torch.int64), {})
