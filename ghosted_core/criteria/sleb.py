from dataclasses import dataclass, field

from ghosted_core.criteria.base import Evidence, Findings, LayerScores
from ghosted_core.criteria.selection import equals_of, single_layers
from ghosted_core.spec import Sleb


@dataclass(frozen=True)
class SlebCriterion:
    """Layers removed one after another, each time the one whose removal costs least.

    In each of n rounds every layer that is left, but for the first and the last of them, is left out
    in turn; the one without which the negative log-likelihood is lowest goes, the first of equals.

    Reference: SLEB, arXiv 2402.09025, algorithm 1.
    """

    form: Sleb = field(default_factory=Sleb)
    evidence = Evidence.LOSSES

    def candidates(self, count: int, layer_count: int) -> tuple[int, ...]:
        """Layers 1 .. L - 2; the first and the last layer are never removed."""
        return single_layers("sleb", count, first=1, stop=layer_count - 1)

    def evaluations(self, count: int, layer_count: int) -> int:
        """Sum over the rounds i of L - i - 2."""
        return sum(layer_count - 2 - done for done in range(count))

    def choose(self, count: int, layer_count: int, findings: Findings) -> LayerScores:
        """Remove greedily; `candidates` of the result are those of the first round."""
        losses_without = findings.seen_losses()
        alive = list(self.candidates(count, layer_count))
        rounds: list[dict[int, float]] = []
        steps: list[tuple[int, float]] = []
        for _ in range(count):
            rounds.append(losses_without([layer for layer, _ in steps], alive))
            winner = min(rounds[-1], key=rounds[-1].__getitem__)
            steps.append((winner, rounds[-1][winner]))
            alive.remove(winner)
        removed = sorted(layer for layer, _ in steps)
        equals = {o for (w, _), scores in zip(steps, rounds, strict=True) for o in equals_of(w, scores)}
        return LayerScores(
            criterion="sleb",
            meaning="negative log-likelihood without the layers removed so far and this one (first round)",
            removed=tuple(removed),
            candidates=tuple(rounds[0].items()),
            best="lowest",
            ties=tuple(sorted(equals)),
            protected=(0, layer_count - 1),
            steps=tuple(steps),
        )
