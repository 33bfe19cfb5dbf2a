from ghosted_core.criteria.base import Evidence, LayerScores
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import LayerSimilarity


class StreamlineCriterion:
    """The run of n layers over which the hidden state turns least.

    argmax over s in 1 .. L - n of mean over tokens cos(x_s, x_{s+n}); x_L is the last layer's output
    before the final norm. The first layer always stays: its input is the bare embedding.

    Reference: LLM-Streamline, arXiv 2403.19135, section 3.
    """

    evidence = Evidence.SIMILARITY

    def choose(self, spec: JobSpec, layer_count: int, similarity: LayerSimilarity | None) -> LayerScores:
        """Score every admissible start of a run."""
        count = spec.removal_count
        if similarity is None:
            raise ValueError("streamline needs the similarity of hidden states")
        if count >= layer_count:
            raise InvalidSpecError(
                f"'layers' is {count}; streamline keeps the first layer, so of {layer_count} layers "
                f"at most {layer_count - 1} can go."
            )
        mean = similarity.mean()
        scores = {start: float(mean[start, start + count]) for start in range(1, layer_count - count + 1)}
        winner = max(scores, key=lambda start: scores[start])
        return LayerScores(
            criterion="streamline",
            meaning=f"mean over tokens of cos(x_s, x_(s+{count})) for a run of {count} layers from s",
            removed=tuple(range(winner, winner + count)),
            candidates=tuple(scores.items()),
            ties=tuple(s for s, score in scores.items() if score == scores[winner] and s != winner),
        )
