"""Which layers go, as integers only: nothing here knows a model."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from ghosted_core.errors import InvalidSpecError

INDICES = "strategy.indices"


@dataclass(frozen=True, order=True)
class Boundary:
    """A removed run of layers [start, stop) of the source model.

    The operator that repairs it maps the input of layer `start` to the input of layer `stop`
    (for stop == layer count: to what the final norm sees).
    """

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of layers removed."""
        return self.stop - self.start


@dataclass(frozen=True)
class PruningPlan:
    """Disjoint boundaries in ascending order, no two of them adjacent."""

    layer_count: int
    boundaries: tuple[Boundary, ...]

    @classmethod
    def from_removed(cls, removed: Iterable[int], *, layer_count: int) -> "PruningPlan":
        """The plan that removes exactly the layers `removed`; neighbours become one boundary.

        Raises:
            InvalidSpecError: none, repeated or out-of-range indices, or no layer would be left.
        """
        indices = sorted(removed)
        _check(indices, layer_count)
        runs: list[Boundary] = []
        # Within a run of neighbours, index minus rank is constant.
        for _, group in itertools.groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]):
            run = [index for _, index in group]
            runs.append(Boundary(run[0], run[-1] + 1))
        return cls(layer_count=layer_count, boundaries=tuple(runs))

    @property
    def removed(self) -> tuple[int, ...]:
        """Indices of the removed layers in the source model."""
        return tuple(index for b in self.boundaries for index in range(b.start, b.stop))

    @property
    def kept(self) -> tuple[int, ...]:
        """Indices of the kept layers in the source model; the position in it is the new index."""
        removed = set(self.removed)
        return tuple(index for index in range(self.layer_count) if index not in removed)

    def position(self, boundary: Boundary) -> int:
        """Index, in the pruned model, of the layer that the operator precedes (len(kept) at the end)."""
        return boundary.start - sum(b.size for b in self.boundaries if b.start < boundary.start)


def _check(indices: list[int], layer_count: int) -> None:
    if not indices:
        raise InvalidSpecError("No layer is named for removal.", field=INDICES)
    if len(set(indices)) != len(indices):
        repeated = sorted({index for index in indices if indices.count(index) > 1})
        raise InvalidSpecError(f"Layers named more than once: {repeated}.", field=INDICES)
    outside = [index for index in indices if not 0 <= index < layer_count]
    if outside:
        raise InvalidSpecError(
            f"Layers {outside} do not exist: the model has layers 0 to {layer_count - 1}.", field=INDICES
        )
    if len(indices) == layer_count:
        raise InvalidSpecError(
            f"Removing {layer_count} of {layer_count} layers leaves no model.", field=INDICES
        )
