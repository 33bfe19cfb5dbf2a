from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import pick_run, run_starts, scored
from ghosted_core.spec import Angular


@dataclass(frozen=True)
class AngularCriterion:
    """The run of n layers over which the last token turns least.

    argmin over s in 0 .. L - n of the mean over sequences of arccos(cos(x_s, x_{s+n})) / pi at the
    last token that is not padding.

    Reference: Gromov et al., arXiv 2403.17887, equation 7.
    """

    form: Angular = field(default_factory=Angular)
    evidence = Evidence.SIMILARITY

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Starts 0 .. L - n."""
        return run_starts("angular", count, first=0, stop=layer_count)

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Take the run of the smallest mean angle."""
        mean = findings.seen_similarity().angle_mean()
        starts = self.candidates(count, layer_count)
        return pick_run(
            "angular",
            f"mean over sequences of the angle, over pi, of x_s and x_(s+{count}) at the last token",
            scored(starts, lambda start: float(mean[start, start + count])),
            count=count,
            layer_count=layer_count,
            best="lowest",
        )
