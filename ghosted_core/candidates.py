"""What a criterion may remove, by its rule alone. Free of torch: the criteria themselves are not."""

from dataclasses import dataclass
from typing import Literal

from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import PruningPlan
from ghosted_core.spec import AnyStrategy, Explicit, Reverse, Streamline

PROTECTED_FIRST, PROTECTED_LAST = 4, 2
# What these score is the run of layers from each start; the others score single layers.
SCORING_RUNS = frozenset({"streamline", "streamline_channel", "angular"})


@dataclass(frozen=True)
class Candidates:
    """What a criterion chooses among: the starts of runs of layers, or single layers.

    `removed` are the layers that go, where that is known without looking at the model.
    """

    kind: Literal["runs", "layers"]
    choices: tuple[int, ...]
    removed: tuple[int, ...] | None = None

    def largest(self, count: int) -> tuple[int, ...]:
        """Layers that would go if `count` do, with as many separate cuts as there can be."""
        if self.removed is not None:
            return self.removed
        if self.kind == "runs":
            return tuple(range(self.choices[0], self.choices[0] + count))
        apart = self.choices[::2]
        return (*apart, *(one for one in self.choices if one not in apart))[:count]


def candidates(strategy: AnyStrategy, count: int, layer_count: int) -> Candidates:
    """What `strategy` chooses among when `count` of `layer_count` layers go.

    Raises:
        InvalidSpecError: there are not that many.
    """
    if isinstance(strategy, Explicit):
        removed = PruningPlan.from_removed(strategy.indices, layer_count=layer_count).removed
        return Candidates("layers", removed, removed)
    first, stop = _span(strategy, layer_count)
    if count > stop - first:
        room = max(stop - first, 0)
        raise InvalidSpecError(
            f"'layers' is {count}; {strategy.name} chooses among {room} of the {layer_count} layers.",
            advice=f"Remove at most {room} layers, or name them with strategy 'explicit'.",
            field="layers",
        )
    if isinstance(strategy, Reverse):
        return Candidates("runs", (stop - count,), tuple(range(stop - count, stop)))
    if strategy.name in SCORING_RUNS:
        return Candidates("runs", tuple(range(first, stop - count + 1)))
    return Candidates("layers", tuple(range(first, stop)))


def _span(strategy: AnyStrategy, layer_count: int) -> tuple[int, int]:
    """The layers from the first that may go to before the second."""
    if isinstance(strategy, Reverse):
        return 0, layer_count - strategy.keep_last
    if isinstance(strategy, Streamline):
        return int(strategy.keep_first), layer_count
    if getattr(strategy, "protect", False):
        return PROTECTED_FIRST, layer_count - PROTECTED_LAST
    spans = {
        "streamline_channel": (1, layer_count - 1),
        "shortgpt_channel": (0, layer_count - 1),
        "sleb": (1, layer_count - 1),
    }
    return spans.get(strategy.name, (0, layer_count))
