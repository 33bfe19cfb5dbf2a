import pytest
import torch

from ghosted_core.criteria import CRITERIA
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import LayerSimilarity

LAYERS = 6


def spec(layers: int) -> JobSpec:
    return JobSpec.model_validate({"model": "a/b", "layers": layers})


def similarity(cosines: dict[tuple[int, int], float]) -> LayerSimilarity:
    matrix = torch.zeros(LAYERS + 1, LAYERS + 1, dtype=torch.float64)
    for (start, stop), value in cosines.items():
        matrix[start, stop] = value * 10
    return LayerSimilarity(matrix, tokens=10)


def test_the_most_similar_run_goes() -> None:
    """argmax over the starts of the mean cosine."""
    scores = CRITERIA["streamline"].choose(spec(2), LAYERS, similarity({(3, 5): 0.9, (1, 3): 0.8}))
    assert scores.removed == (3, 4)


def test_the_first_layer_stays_and_the_last_may_go() -> None:
    """Candidates are the starts 1 .. L - n, whatever layer 0 scores."""
    scores = CRITERIA["streamline"].choose(spec(2), LAYERS, similarity({(0, 2): 1.0, (4, 6): 0.5}))
    assert [start for start, _ in scores.candidates] == [1, 2, 3, 4]
    assert scores.removed == (4, 5)


def test_the_first_of_equals_wins_and_ties_are_told() -> None:
    """Ties are broken towards the input and reported."""
    scores = CRITERIA["streamline"].choose(spec(2), LAYERS, similarity({(2, 4): 0.7, (4, 6): 0.7}))
    assert scores.removed == (2, 3)
    assert scores.ties == (4,)


def test_all_layers_cannot_go() -> None:
    """The first layer is protected, so n = L is refused with the limit."""
    with pytest.raises(InvalidSpecError, match="at most 5"):
        CRITERIA["streamline"].choose(spec(LAYERS), LAYERS, similarity({}))
