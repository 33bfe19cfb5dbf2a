import math
from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_singles, unprotected
from ghosted_core.spec import PerplexityWithout


@dataclass(frozen=True)
class PerplexityCriterion:
    """The n layers without which, one at a time, perplexity stays lowest.

    Reference: Shortened LLaMA, arXiv 2402.02834, section 3.
    """

    form: PerplexityWithout = field(default_factory=PerplexityWithout)
    evidence = Evidence.LOSSES

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Every layer, with `protect` but for the first 4 and the last 2."""
        return unprotected("perplexity", count, layer_count, protect=self.form.protect)

    def evaluations(self, count: int, layer_count: int) -> int:
        """One a candidate."""
        return len(self.candidates(count, layer_count))

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the layers whose absence, each alone, gives the lowest perplexity."""
        losses = findings.seen_losses()((), self.candidates(count, layer_count))
        return pick_singles(
            "perplexity",
            "perplexity of the model without this layer alone",
            {layer: math.exp(loss) for layer, loss in losses.items()},
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
