from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_singles, unprotected
from ghosted_core.spec import Taylor


@dataclass(frozen=True)
class TaylorCriterion:
    """The n layers whose weights matter least to the loss, to first order.

    Sum over the layer's weight matrices of |W dL/dW|, L the mean negative log-likelihood over the
    text: gradients are added up with their sign, the absolute value is taken afterwards.

    Reference: Shortened LLaMA, arXiv 2402.02834, section 3.
    """

    form: Taylor = field(default_factory=Taylor)
    evidence = Evidence.GRADIENTS

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Every layer, with `protect` but for the first 4 and the last 2."""
        return unprotected("taylor", count, layer_count, protect=self.form.protect)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the layers of the smallest sum."""
        importance = findings.seen_importance()
        return pick_singles(
            "taylor",
            "sum over the layer's weight matrices of |W dL/dW|",
            {layer: importance[layer] for layer in self.candidates(count, layer_count)},
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
