"""Evidence made by hand."""

import torch

from ghosted_core.statistics import LayerSimilarity


def planted(layer_count: int, values: dict[tuple[int, int], float]) -> LayerSimilarity:
    """Every mean (token, channel, angle) of a pair is its value in `values`, else 0."""
    matrix = torch.zeros(layer_count + 1, layer_count + 1, dtype=torch.float64)
    for (start, stop), value in values.items():
        matrix[start, stop] = value * 8
    return LayerSimilarity(matrix, matrix.clone(), matrix.clone(), tokens=8, sequences=8)
