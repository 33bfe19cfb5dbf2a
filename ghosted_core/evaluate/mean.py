"""A mean over windows, and how sure it is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Mean:
    """A mean over windows of equal length, and its standard error over them (NaN for one window)."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Mean":
        """That of `values`."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        spread = float(tensor.std(correction=1)) if len(tensor) > 1 else math.nan
        return cls(float(tensor.mean()), spread / math.sqrt(len(tensor)))
