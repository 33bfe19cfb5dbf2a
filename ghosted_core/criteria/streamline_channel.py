from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_run, run_starts, scored
from ghosted_core.spec import StreamlineChannel


@dataclass(frozen=True)
class StreamlineChannelCriterion:
    """The run of n layers whose input and output are most alike along the sequence.

    argmax over s in 1 .. L - n - 1 of the mean over channels and sequences of the cosine of x_s and
    x_{s+n} along the sequence axis. What the released code of Ghosted Layers (arXiv 2605.15491) and
    LinearPatch (arXiv 2505.24680) computes under the name of LLM-Streamline.
    """

    form: StreamlineChannel = field(default_factory=StreamlineChannel)
    evidence = Evidence.SIMILARITY

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Starts 1 .. L - n - 1: first and last layer stay."""
        return run_starts("streamline_channel", count, first=1, stop=layer_count - 1)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the run of the highest mean cosine."""
        mean = findings.seen_similarity().channel_mean()
        starts = self.candidates(count, layer_count)
        return pick_run(
            "streamline_channel",
            f"mean over sequences and channels of the cosine of x_s and x_(s+{count}) along the sequence",
            scored(starts, lambda start: float(mean[start, start + count])),
            count=count,
            layer_count=layer_count,
            best="highest",
        )
