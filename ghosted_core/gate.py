"""Whether a result is good enough for what its spec allows. Torch-free."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ghosted_core.errors import QualityGateError
from ghosted_core.spec import Bound

DENSE = "dense"


def _ratio(result: float, dense: float) -> float:
    """Of what the dense model has none of, as much as it has is no change; any more has no ratio."""
    if dense:
        return result / dense
    return 1.0 if result == 0 else math.copysign(math.inf, result)


# What of the result is compared with its limit.
RELATIVE: Mapping[str, Callable[[float, float], float]] = {
    "max_ratio": _ratio,
    "min_ratio": _ratio,
    "max_rise": lambda result, dense: result - dense,
    "max_drop": lambda result, dense: dense - result,
}
FINITE = "finite"
MEASURED = "measured"


@dataclass(frozen=True)
class Check:
    """One limit of one metric: what was allowed, what was found of the result and of the dense model.

    `found` is what is compared with `allowed`: a ratio, a difference, or the result itself. None:
    there is no such figure.
    """

    metric: str
    limit: str
    allowed: float | None
    found: float | None
    result: float | None
    dense: float | None
    passed: bool

    def __str__(self) -> str:
        """The numbers in a sentence."""
        if self.limit == MEASURED:
            return f"{self.metric} was not measured"
        if self.limit == FINITE:
            return f"{self.metric} is not a finite number"
        against = f" (dense {self.dense:.4g})" if self.dense is not None and self.limit in RELATIVE else ""
        numbers = f"{self.metric} is {_said(self.result)}{against}"
        return f"{numbers}: {self.limit} is {_said(self.allowed)}, found {_said(self.found)}"


@dataclass(frozen=True)
class Verdict:
    """All checks of a gate, in the order of the spec."""

    checks: tuple[Check, ...] = ()

    @property
    def misses(self) -> tuple[Check, ...]:
        """Those that failed."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def passed(self) -> bool:
        """Whether none failed."""
        return not self.misses

    def error(self) -> QualityGateError:
        """What to raise where the gate was missed, with the numbers of all misses."""
        return QualityGateError("; ".join(str(miss) for miss in self.misses) + ".")


def judge(
    gate: Iterable[Bound], measured: Mapping[str, float], derived: Mapping[str, float], artifact: str
) -> Verdict:
    """Whether a job's figures keep the bounds; `artifact` is the variant that the job delivers.

    Figures are named METRIC_VARIANT. Those that were `measured` have to be finite, bounded or not; what
    is `derived` from them may be undefined. One that a bound names and nobody measured is a miss.
    """
    checks = [_finite(name) for name, value in measured.items() if not math.isfinite(value)]
    for bound in gate:
        checks += _checks(bound, {**derived, **measured}, artifact)
    return Verdict(tuple(checks))


def _finite(name: str) -> Check:
    return Check(name, FINITE, None, None, None, None, passed=False)


def _checks(bound: Bound, figures: Mapping[str, float], artifact: str) -> list[Check]:
    result = figures.get(f"{bound.metric}_{artifact}", figures.get(bound.metric))
    dense = figures.get(f"{bound.metric}_{DENSE}")
    if result is None:
        return [Check(bound.metric, MEASURED, None, None, None, dense, passed=False)]
    return [_check(bound.metric, limit, allowed, result, dense) for limit, allowed in bound.limits.items()]


def _check(metric: str, limit: str, allowed: float, result: float, dense: float | None) -> Check:
    if limit in RELATIVE and dense is None:
        return Check(f"{metric}_{DENSE}", MEASURED, allowed, None, _plain(result), None, passed=False)
    compare = RELATIVE.get(limit)
    found = result if compare is None or dense is None else compare(result, dense)
    # Not-a-number passes neither comparison.
    passed = found <= allowed if limit.startswith("max") else found >= allowed
    return Check(metric, limit, allowed, _plain(found), _plain(result), _plain(dense), passed)


def _plain(value: float | None) -> float | None:
    """JSON has no infinity and no not-a-number."""
    return value if value is not None and math.isfinite(value) else None


def _said(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
