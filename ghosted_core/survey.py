"""All that one pass over the text says of a model's layers."""

from dataclasses import dataclass

import torch

from ghosted_core.checkpoint.load import load_config
from ghosted_core.criteria import Evidence, Findings, LayerScores, criterion_for, usual_criteria
from ghosted_core.errors import InvalidSpecError
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.families import family_of, layers_of
from ghosted_core.model.gradients import weight_magnitude
from ghosted_core.pipeline import check_fit
from ghosted_core.recorder import Stage, stage
from ghosted_core.scoring import GATHERINGS, Subject
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import LayerSimilarity
from ghosted_core.workplace import Workplace

ONE_PASS = frozenset({Evidence.SIMILARITY, Evidence.WEIGHTS, Evidence.NOTHING})


@dataclass(frozen=True)
class Survey:
    """What each criterion of one forward pass (or of none) would remove when `count` layers go.

    `refused` says of the others of them, by name, why they cannot remove that many. `similarity`
    holds the sums of all pairs of states that all of it came from.
    """

    count: int
    layer_count: int
    scores: tuple[LayerScores, ...]
    refused: dict[str, str]
    similarity: LayerSimilarity


def survey(spec: JobSpec, place: Workplace) -> Survey:
    """Run the calibration text of `spec` through its model once and ask every such criterion.

    Of the spec count model, number of layers, calibration and dtype.

    Raises:
        GhostedError: the model or the text cannot be used, or states are not finite.
    """
    source = place.source(spec.model)
    check_fit(spec, load_config(source))
    meter = ProcessMeter(torch.device(place.device))
    with stage(Stage.LOAD, place.recorder, meter, unit="steps", total=2) as scope:
        model = place.model(source, spec.dtype)
        scope.advance(1)
        windows = place.calibration(spec, source, model, scope)
    layers = layers_of(model, family_of(model.config.model_type))
    subject = Subject(model, windows, criterion_for(spec.strategy), spec.removal_count(len(layers)))
    gathering = GATHERINGS[Evidence.SIMILARITY]
    total = gathering.total(subject)
    with stage(Stage.SCORE, place.recorder, meter, unit=gathering.unit, total=total) as scope:
        similarity = gathering.gather(subject, scope).seen_similarity()
    found = Findings(similarity, tuple(weight_magnitude(layer) for layer in layers))
    scores, refused = _ask_all(subject.count, len(layers), found)
    return Survey(subject.count, len(layers), scores, refused, similarity)


def _ask_all(count: int, layer_count: int, found: Findings) -> tuple[tuple[LayerScores, ...], dict[str, str]]:
    scores: list[LayerScores] = []
    refused: dict[str, str] = {}
    for name, criterion in usual_criteria().items():
        if criterion.evidence not in ONE_PASS:
            continue
        try:
            scores.append(criterion.choose(count, layer_count, found))
        except InvalidSpecError as error:
            refused[name] = error.message
    return tuple(scores), refused
