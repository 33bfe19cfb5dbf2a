from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_singles, scored, single_layers
from ghosted_core.spec import ShortGpt


@dataclass(frozen=True)
class ShortGptCriterion:
    """The n layers of least block influence, BI_l = 1 - mean over tokens cos(x_l, x_{l+1}).

    Reference: ShortGPT, arXiv 2403.03853, equation 1.
    """

    form: ShortGpt = field(default_factory=ShortGpt)
    evidence = Evidence.SIMILARITY

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Every layer."""
        return single_layers("shortgpt", count, first=0, stop=layer_count)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the layers of the lowest influence."""
        mean = findings.seen_similarity().token_mean()
        return pick_singles(
            "shortgpt",
            "block influence of layer l: 1 - mean over tokens of cos(x_l, x_(l+1))",
            scored(self.candidates(count, layer_count), lambda layer: float(1 - mean[layer, layer + 1])),
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
