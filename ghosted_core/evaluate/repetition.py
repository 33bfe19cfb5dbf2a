"""How much a text says twice: damage that perplexity and multiple choice do not show."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence


def distinct(tokens: Sequence[Hashable], n: int) -> float:
    """The share of different n-grams among all n-grams; NaN where there is none.

    1 for a text that never repeats n tokens, near 0 for one that repeats itself.
    """
    grams = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else math.nan


def longest_repeat(tokens: Sequence[Hashable]) -> int:
    """The length of the longest run of tokens that occurs at two places, which may overlap.

    With s(i, j) the length of the common ending of tokens[: i] and tokens[: j], i < j, that is
    max s(i, j) by s(i, j) = s(i - 1, j - 1) + 1 where the last tokens are equal: quadratic time.
    """
    longest = 0
    before = [0] * (len(tokens) + 1)
    for end in range(1, len(tokens) + 1):
        now = [0] * (len(tokens) + 1)
        for start in range(1, end):
            if tokens[start - 1] == tokens[end - 1]:
                now[start] = before[start - 1] + 1
        longest = max(longest, *now)
        before = now
    return longest


def repetition(continuations: Iterable[Sequence[Hashable]]) -> Mapping[str, float]:
    """Means over continuations of their distinct n-grams, n = 1 to 3, and of their longest repeats.

    What no continuation is long enough for is left out.
    """
    texts = [tokens for tokens in continuations if tokens]
    found = {f"distinct_{n}": _mean([distinct(tokens, n) for tokens in texts]) for n in (1, 2, 3)}
    found["longest_repeat"] = _mean([float(longest_repeat(tokens)) for tokens in texts])
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
