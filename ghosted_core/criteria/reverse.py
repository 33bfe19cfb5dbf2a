from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import run_starts
from ghosted_core.spec import Reverse


@dataclass(frozen=True)
class ReverseCriterion:
    """The n deepest layers, the very last one excepted.

    Reference: the simple rule of Gromov et al., arXiv 2403.17887, section 4.4. Without `keep_last`
    the last layer goes too, as in arXiv 2411.15558.
    """

    form: Reverse = field(default_factory=Reverse)
    evidence = Evidence.NOTHING

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """The one start that there is."""
        stop = layer_count - 1 if self.form.keep_last else layer_count
        return run_starts("reverse", count, first=0, stop=stop)[-1:]

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:  # noqa: ARG002 - the protocol's signature
        """Take the deepest run."""
        (start,) = self.candidates(count, layer_count)
        return LayerScores(
            criterion="reverse",
            meaning="the deepest layers" + (", the last one kept" if self.form.keep_last else ""),
            removed=tuple(range(start, start + count)),
            protected=(layer_count - 1,) if self.form.keep_last else (),
        )
