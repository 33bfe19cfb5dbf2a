"""Gathers what a criterion has to see of the model, and lets it choose."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from ghosted_core.criteria import (
    Criterion,
    Evidence,
    Findings,
    LayerScores,
    LossCriterion,
    OtherScores,
    criterion_for,
    usual_criteria,
)
from ghosted_core.data import Windows, batches
from ghosted_core.errors import InvalidSpecError, NonFiniteError
from ghosted_core.evaluate.without import LossesWithoutLayers
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import Family, family_of, layers_of
from ghosted_core.model.gradients import taylor_importance, weight_magnitude
from ghosted_core.recorder import Meter, Recorder, Stage, StageScope, stage
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import LayerSimilarity

# A loss beyond this has no perplexity in float64.
LOSS_LIMIT_NATS = 700.0


@dataclass(frozen=True)
class Subject:
    """The model that is looked at, and the text with which."""

    model: PreTrainedModel
    windows: Windows
    criterion: Criterion
    count: int

    @property
    def family(self) -> Family:
        """The architecture's row in the table."""
        return family_of(self.model.config.model_type)

    @property
    def layer_count(self) -> int:
        """Number of decoder layers, L."""
        return len(layers_of(self.model, self.family))

    @property
    def tokens(self) -> int:
        """Tokens in all windows."""
        return self.windows.tokens.numel()

    @property
    def evaluations(self) -> int:
        """How often the criterion asks for a loss."""
        if isinstance(self.criterion, LossCriterion):
            return self.criterion.evaluations(self.count, self.layer_count)
        return 0


@dataclass(frozen=True)
class Gathering:
    """How evidence of a kind is gathered: what its progress counts, up to what total, and by what."""

    unit: str
    total: Callable[[Subject], int]
    gather: Callable[[Subject, StageScope], Findings]


# Findings for as long as the criterion looks at them: gathered, or known from before.
Recall = Callable[[Gathering, Subject, StageScope], AbstractContextManager[Findings]]


def gather_anew(
    gathering: Gathering, subject: Subject, scope: StageScope
) -> AbstractContextManager[Findings]:
    """The findings, with nothing known from before and nothing left for later."""
    return nullcontext(gathering.gather(subject, scope))


def score_layers(
    spec: JobSpec,
    model: PreTrainedModel,
    calibration: Windows,
    recorder: Recorder,
    meter: Meter,
    recall: Recall = gather_anew,
) -> LayerScores:
    """The layers to remove and why, after one look at the model at most as long as the criterion needs.

    The model is left as it was. Without need of evidence, there is no stage.

    Raises:
        InvalidSpecError: the criterion cannot remove that many layers of this model.
        NonFiniteError: hidden states, gradients or losses are not finite.
    """
    layer_count = len(layers_of(model, family_of(model.config.model_type)))
    count = spec.removal_count(layer_count)
    criterion = criterion_for(spec.strategy)
    criterion.candidates(count, layer_count)
    if criterion.evidence is Evidence.NOTHING:
        return criterion.choose(count, layer_count, Findings())
    subject = Subject(model, _looked_at(spec, calibration), criterion, count)
    gathering = GATHERINGS[criterion.evidence]
    total = gathering.total(subject)
    with (
        stage(Stage.SCORE, recorder, meter, unit=gathering.unit, total=total) as scope,
        recall(gathering, subject, scope) as findings,
    ):
        scores = criterion.choose(count, layer_count, findings)
        scores = replace(scores, others=_others(scores.criterion, subject, findings))
    if criterion.evidence is Evidence.WEIGHTS:
        return scores
    sequences, length = subject.windows.tokens.shape
    return replace(scores, sequences=sequences, sequence_length=length)


def _others(chosen_by: str, subject: Subject, findings: Findings) -> tuple[OtherScores, ...]:
    """What the criteria that see the same say of it; those that measure losses would have to measure."""
    evidence = subject.criterion.evidence
    if evidence is Evidence.LOSSES:
        return ()
    told = []
    for name, criterion in usual_criteria().items():
        if name == chosen_by or criterion.evidence is not evidence:
            continue
        # A criterion that cannot remove so many has nothing to say.
        with suppress(InvalidSpecError):
            said = criterion.choose(subject.count, subject.layer_count, findings)
            told.append(OtherScores(name, said.meaning, said.removed, said.candidates, said.best))
    return tuple(told)


def _looked_at(spec: JobSpec, calibration: Windows) -> Windows:
    """The part of the calibration text that the strategy asks for; all of it if it does not say."""
    strategy = spec.strategy
    return calibration.head(getattr(strategy, "sequences", None), getattr(strategy, "sequence_length", None))


def gather_similarity(subject: Subject, scope: StageScope) -> Findings:
    """Sums over all pairs of states, from one pass."""
    similarity = LayerSimilarity.empty(subject.layer_count)
    stream, states = ResidualStream(subject.model, subject.family), range(subject.layer_count + 1)
    for batch in scope.track(batches(subject.windows)):
        found = stream.read(batch.to(subject.model.device), states)
        similarity.update([found[index] for index in states])
    return Findings(similarity=similarity)


def gather_weights(subject: Subject, scope: StageScope) -> Findings:
    """The size of each layer's weights."""
    sizes = []
    for layer in layers_of(subject.model, subject.family):
        sizes.append(weight_magnitude(layer))
        scope.advance(1)
    return Findings(importance=tuple(sizes))


def gather_gradients(subject: Subject, scope: StageScope) -> Findings:
    """What the loss makes of each layer's weights."""
    found = taylor_importance(subject.model, subject.family, list(batches(subject.windows)), scope.advance)
    return Findings(importance=found)


def gather_losses(subject: Subject, scope: StageScope) -> Findings:
    """The means to measure the loss without any layers; the criterion decides which."""
    without = LossesWithoutLayers(subject.model, subject.family)

    def losses_without(removed: Collection[int], candidates: Collection[int]) -> dict[int, float]:
        found = without(removed, candidates, batches(subject.windows), scope.advance)
        for layer, loss in found.items():
            # Not `>=`: that is false of what is not a number.
            if not loss < LOSS_LIMIT_NATS:
                raise NonFiniteError(
                    f"Without layers {sorted({*removed, layer})} the model's loss is {loss}."
                )
        return found

    return Findings(losses_without=losses_without)


GATHERINGS: Mapping[Evidence, Gathering] = {
    Evidence.SIMILARITY: Gathering("tokens", lambda subject: subject.tokens, gather_similarity),
    Evidence.WEIGHTS: Gathering("layers", lambda subject: subject.layer_count, gather_weights),
    Evidence.GRADIENTS: Gathering("layer runs", lambda subject: 2 * subject.layer_count, gather_gradients),
    Evidence.LOSSES: Gathering("tokens", lambda s: s.evaluations * s.tokens, gather_losses),
}
