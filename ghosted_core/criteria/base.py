"""What every criterion takes and gives."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from ghosted_core.plan import PruningPlan
from ghosted_core.statistics import LayerSimilarity

Found = TypeVar("Found")


class Evidence(Enum):
    """What a criterion has to see of the model before it can choose."""

    NOTHING = "nothing"
    SIMILARITY = "similarity"  # one pass: how alike the states of all pairs of layers are
    WEIGHTS = "weights"  # no text: the size of each layer's weights
    GRADIENTS = "gradients"  # one pass forward and back: what the loss makes of each layer's weights
    LOSSES = "losses"  # many small evaluations with layers left out


class LossesWithout(Protocol):
    """Measures what is lost without some layers."""

    def __call__(self, removed: Collection[int], candidates: Collection[int]) -> dict[int, float]:
        """For each of `candidates`, the loss of the model without it and without the layers `removed`.

        That is the mean negative log-likelihood, in nats a token. Asked for together, the candidates
        share the layers before each.
        """


@dataclass(frozen=True)
class Findings:
    """What was seen of the model; of the three, only what the criterion's `evidence` asks for is there.

    `importance` has one number a layer: sum of |W| or of |W dL/dW| over its weight matrices.
    """

    similarity: LayerSimilarity | None = None
    importance: tuple[float, ...] | None = None
    losses_without: LossesWithout | None = None

    def seen_similarity(self) -> LayerSimilarity:
        """The similarity of hidden states, which was asked for."""
        return _there(self.similarity, Evidence.SIMILARITY)

    def seen_importance(self) -> tuple[float, ...]:
        """The importance of each layer, which was asked for."""
        return _there(self.importance, Evidence.WEIGHTS)

    def seen_losses(self) -> LossesWithout:
        """The means to measure losses, which was asked for."""
        return _there(self.losses_without, Evidence.LOSSES)


def _there(found: Found | None, evidence: Evidence) -> Found:
    if found is None:
        raise ValueError(f"This criterion needs {evidence.value}, and nobody gathered that.")
    return found


@dataclass(frozen=True)
class OtherScores:
    """What another criterion says of the same evidence, and which layers it would remove."""

    criterion: str
    meaning: str
    removed: tuple[int, ...]
    candidates: tuple[tuple[int, float], ...]
    best: str


@dataclass(frozen=True)
class LayerScores:
    """Why these layers go.

    `candidates` maps each admissible choice (the start of a run, or a single layer) to its score;
    `best` says whether the highest or lowest wins; `protected` lists layers that no choice would
    remove. `ties` lists candidates that stay although they score exactly as the last one chosen: of
    equals, those nearest to the input go. `steps` holds layer and score of each removal, in order,
    where scores are measured anew after each. `sequences` x `sequence_length` tokens of the
    calibration text were looked at. `others` are the criteria that needed no further look.
    """

    criterion: str
    meaning: str
    removed: tuple[int, ...]
    candidates: tuple[tuple[int, float], ...] = ()
    best: str = "highest"
    ties: tuple[int, ...] = ()
    protected: tuple[int, ...] = ()
    steps: tuple[tuple[int, float], ...] = ()
    sequences: int = 0
    sequence_length: int = 0
    others: tuple[OtherScores, ...] = ()


class Criterion(Protocol):
    """Chooses the layers to remove; made from its form in `spec`."""

    @property
    def evidence(self) -> Evidence:
        """What has to be gathered for it."""

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """The admissible choices when `count` of `layer_count` layers go: starts of runs, or layers.

        Raises:
            InvalidSpecError: there is none.
        """

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Score the candidates and pick `count` layers.

        Raises:
            InvalidSpecError: as `candidates`.
        """


@runtime_checkable
class LossCriterion(Criterion, Protocol):
    """A criterion that measures losses as it goes."""

    def evaluations(self, count: int, layer_count: int) -> int:
        """For how many candidates in all `choose` asks for a loss."""


def plan_of(scores: LayerScores, layer_count: int) -> PruningPlan:
    """The plan that removes the chosen layers."""
    return PruningPlan.from_removed(scores.removed, layer_count=layer_count)
