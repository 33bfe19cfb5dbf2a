from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_singles, unprotected
from ghosted_core.spec import Magnitude


@dataclass(frozen=True)
class MagnitudeCriterion:
    """The n layers with the smallest weights: sum of |W| over the layer's weight matrices.

    Reference: Shortened LLaMA, arXiv 2402.02834, section 3.
    """

    form: Magnitude = field(default_factory=Magnitude)
    evidence = Evidence.WEIGHTS

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Every layer, with `protect` but for the first 4 and the last 2."""
        return unprotected("magnitude", count, layer_count, protect=self.form.protect)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the layers of the smallest sum."""
        importance = findings.seen_importance()
        return pick_singles(
            "magnitude",
            "sum over the layer's weight matrices of |W|",
            {layer: importance[layer] for layer in self.candidates(count, layer_count)},
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
