from ghosted_core.criteria.base import Evidence, LayerScores
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import Explicit, JobSpec
from ghosted_core.statistics import LayerSimilarity


class ExplicitCriterion:
    """The layers that the user named."""

    evidence = Evidence.NOTHING

    def choose(self, spec: JobSpec, layer_count: int, similarity: LayerSimilarity | None) -> LayerScores:  # noqa: ARG002 - the protocol's signature
        """Take the indices as they are; `PruningPlan` checks them against the model."""
        if not isinstance(spec.strategy, Explicit):
            raise InvalidSpecError("Strategy 'explicit' needs 'indices'.")
        removed = tuple(sorted(spec.strategy.indices))
        return LayerScores(criterion="explicit", meaning="named by the user", removed=removed)
