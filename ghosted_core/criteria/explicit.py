from dataclasses import dataclass

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import Explicit


@dataclass(frozen=True)
class ExplicitCriterion:
    """The layers that the user named; the first and the last may be among them."""

    form: Explicit
    evidence = Evidence.NOTHING

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:  # noqa: ARG002 - the protocol's signature
        """The named layers.

        Raises:
            InvalidSpecError: the model has no such layers, or they are all it has.
        """
        return PruningPlan.from_removed(self.form.indices, layer_count=layer_count).removed

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:  # noqa: ARG002 - the protocol's signature
        """Take the indices as they are."""
        removed = self.candidates(count, layer_count)
        return LayerScores(criterion="explicit", meaning="named by the user", removed=removed)
