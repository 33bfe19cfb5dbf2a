"""Picking the best of scored candidates, and saying which others were as good."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal

from ghosted_core.criteria.base import LayerScores
from ghosted_core.errors import InvalidSpecError

Best = Literal["highest", "lowest"]

# Shortened LLaMA's "+": layers whose loss no score of single layers foresees.
PROTECTED_FIRST = 4
PROTECTED_LAST = 2


def run_starts(criterion: str, count: int, *, first: int, stop: int) -> tuple[int, ...]:
    """The starts of runs of `count` layers that lie within the layers first .. stop - 1.

    Raises:
        InvalidSpecError: no run of that length fits.
    """
    if count > stop - first:
        raise InvalidSpecError(
            f"'layers' is {count}; {criterion} chooses among the layers {first} to {stop - 1}, "
            f"so at most {stop - first} can go."
        )
    return tuple(range(first, stop - count + 1))


def single_layers(criterion: str, count: int, *, first: int, stop: int) -> tuple[int, ...]:
    """The layers first .. stop - 1.

    Raises:
        InvalidSpecError: there are fewer than `count`.
    """
    if count > stop - first:
        raise InvalidSpecError(
            f"'layers' is {count}; {criterion} chooses among the {max(stop - first, 0)} layers from {first} "
            f"to {stop - 1}.",
            advice=f"Remove at most {max(stop - first, 0)} layers, or name them with strategy 'explicit'.",
        )
    return tuple(range(first, stop))


def unprotected(criterion: str, count: int, layer_count: int, *, protect: bool) -> tuple[int, ...]:
    """All layers, or those that Shortened LLaMA's "+" does not protect.

    Raises:
        InvalidSpecError: there are fewer than `count`.
    """
    if not protect:
        return single_layers(criterion, count, first=0, stop=layer_count)
    shielded = PROTECTED_FIRST + PROTECTED_LAST
    if layer_count < count + shielded:
        raise InvalidSpecError(
            f"'layers' is {count}; {criterion} protects the first {PROTECTED_FIRST} and the last "
            f"{PROTECTED_LAST} of {layer_count} layers, so at most {max(layer_count - shielded, 0)} can go.",
            advice="Remove fewer layers, or set 'protect' of the strategy to false.",
        )
    return tuple(range(PROTECTED_FIRST, layer_count - PROTECTED_LAST))


def pick_run(
    criterion: str, meaning: str, scores: Mapping[int, float], *, count: int, layer_count: int, best: Best
) -> LayerScores:
    """The run of `count` layers from the best start; the first of equals."""
    winner = _ranked(scores, best)[0]
    return LayerScores(
        criterion=criterion,
        meaning=meaning,
        removed=tuple(range(winner, winner + count)),
        candidates=tuple(scores.items()),
        best=best,
        ties=equals_of(winner, scores),
        protected=_outside({layer for start in scores for layer in range(start, start + count)}, layer_count),
    )


def pick_singles(
    criterion: str, meaning: str, scores: Mapping[int, float], *, count: int, layer_count: int, best: Best
) -> LayerScores:
    """The `count` best layers, wherever they are; of equals, those nearest to the input."""
    chosen = _ranked(scores, best)[:count]
    return LayerScores(
        criterion=criterion,
        meaning=meaning,
        removed=tuple(sorted(chosen)),
        candidates=tuple(scores.items()),
        best=best,
        ties=tuple(layer for layer in equals_of(chosen[-1], scores) if layer not in chosen),
        protected=_outside(scores, layer_count),
    )


def scored(candidates: Sequence[int], score: Callable[[int], float]) -> dict[int, float]:
    """Each candidate with its score, in order."""
    return {candidate: score(candidate) for candidate in candidates}


def equals_of(winner: int, scores: Mapping[int, float]) -> tuple[int, ...]:
    """The other candidates that score exactly as `winner`."""
    return tuple(other for other, score in scores.items() if score == scores[winner] and other != winner)


def _ranked(scores: Mapping[int, float], best: Best) -> list[int]:
    sign = -1 if best == "highest" else 1
    return sorted(scores, key=lambda candidate: (sign * scores[candidate], candidate))


def _outside(layers: Container[int], layer_count: int) -> tuple[int, ...]:
    return tuple(layer for layer in range(layer_count) if layer not in layers)
