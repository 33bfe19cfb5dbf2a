"""What every criterion takes and gives."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ghosted_core.plan import PruningPlan
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import LayerSimilarity


class Evidence(Enum):
    """What a criterion has to see of the model before it can choose."""

    NOTHING = "nothing"
    SIMILARITY = "similarity"


@dataclass(frozen=True)
class LayerScores:
    """Why these layers go.

    `candidates` maps each admissible choice (a start for runs, an index for single layers) to its
    score; `best` says whether the highest or lowest wins; `ties` lists candidates that score
    exactly as the winner does (the first of them wins).
    """

    criterion: str
    meaning: str
    removed: tuple[int, ...]
    candidates: tuple[tuple[int, float], ...] = ()
    best: str = "highest"
    ties: tuple[int, ...] = ()


class Criterion(Protocol):
    """Chooses the layers to remove."""

    evidence: Evidence

    def choose(self, spec: JobSpec, layer_count: int, similarity: LayerSimilarity | None) -> LayerScores:
        """Score the candidates and pick; `similarity` is there if `evidence` asks for it.

        Raises:
            InvalidSpecError: the spec cannot be met by a model of `layer_count` layers.
        """


def plan_of(scores: LayerScores, layer_count: int) -> PruningPlan:
    """The plan that removes the chosen layers."""
    return PruningPlan.from_removed(scores.removed, layer_count=layer_count)
