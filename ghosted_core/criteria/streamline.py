from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_run, run_starts, scored
from ghosted_core.spec import Streamline


@dataclass(frozen=True)
class StreamlineCriterion:
    """The run of n layers over which the hidden state turns least.

    argmax over s in 1 .. L - n of mean over tokens cos(x_s, x_{s+n}); x_L is the last layer's output
    before the final norm. The first layer stays, as its input is the bare embedding, unless
    `keep_first` is false.

    Reference: LLM-Streamline, arXiv 2403.19135, section 3. The paper's code tries s = 0 too, but
    compares the last state after the final norm.
    """

    form: Streamline = field(default_factory=Streamline)
    evidence = Evidence.SIMILARITY

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Starts 1 .. L - n, or 0 .. L - n."""
        return run_starts("streamline", count, first=1 if self.form.keep_first else 0, stop=layer_count)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the run of the highest mean cosine."""
        mean = findings.seen_similarity().token_mean()
        starts = self.candidates(count, layer_count)
        return pick_run(
            "streamline",
            f"mean over tokens of cos(x_s, x_(s+{count})) for a run of {count} layers from s",
            scored(starts, lambda start: float(mean[start, start + count])),
            count=count,
            layer_count=layer_count,
            best="highest",
        )
