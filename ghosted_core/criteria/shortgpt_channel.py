from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_singles, scored, single_layers
from ghosted_core.spec import ShortGptChannel


@dataclass(frozen=True)
class ShortGptChannelCriterion:
    """The n layers of least block influence, with cosines taken along the sequence.

    1 - mean over channels and sequences of the cosine of x_l and x_{l+1} along the sequence axis. As
    the released code of Ghosted Layers (arXiv 2605.15491) has it, the last layer is never scored.
    """

    form: ShortGptChannel = field(default_factory=ShortGptChannel)
    evidence = Evidence.SIMILARITY

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Every layer but the last."""
        return single_layers("shortgpt_channel", count, first=0, stop=layer_count - 1)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the layers of the lowest influence."""
        mean = findings.seen_similarity().channel_mean()
        return pick_singles(
            "shortgpt_channel",
            "1 - mean over sequences and channels of the cosine of x_l and x_(l+1) along the sequence",
            scored(self.candidates(count, layer_count), lambda layer: float(1 - mean[layer, layer + 1])),
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
