import math
from typing import Any

import pytest

from ghosted_core.gate import judge
from ghosted_core.spec import Bound

FIGURES = {
    "perplexity_c4_dense": 10.0,
    "perplexity_c4_pruned": 90.0,
    "perplexity_c4_repaired": 15.0,
    "acc_boolq_dense": 0.75,
    "acc_boolq_pruned": 0.5,
    "acc_boolq_repaired": 0.625,
    "kl_repaired": 0.25,
}
DERIVED = {"damage_ratio": 0.5, "nll_standard_error_dense": math.nan}


def verdict(artifact: str = "repaired", **bound: Any) -> Any:
    return judge([Bound.model_validate(bound)], FIGURES, DERIVED, artifact)


@pytest.mark.parametrize(
    ("metric", "limit", "edge"),
    [
        ("perplexity_c4", "max_ratio", 1.5),
        ("perplexity_c4", "min_ratio", 1.5),
        ("perplexity_c4", "max_rise", 5.0),
        ("acc_boolq", "max_drop", 0.125),
        ("kl", "max", 0.25),
        ("acc_boolq", "min", 0.625),
        ("damage_ratio", "max", 0.5),
    ],
)
def test_each_limit_holds_at_its_edge_and_not_beyond(metric: str, limit: str, edge: float) -> None:
    """The edge itself is allowed; a hair tighter is a miss with the numbers."""
    assert verdict(metric=metric, **{limit: edge}).passed
    tighter = edge * (0.99 if limit.startswith("max") else 1.01)
    missed = verdict(metric=metric, **{limit: tighter})
    assert not missed.passed
    assert missed.misses[0].found == pytest.approx(edge)
    assert metric in str(missed.error())


def test_the_error_has_the_numbers() -> None:
    """Result, dense, what was allowed and what was found."""
    error = verdict(metric="perplexity_c4", max_ratio=1.2).error()
    assert error.code == "quality_gate"
    assert error.message == "perplexity_c4 is 15 (dense 10): max_ratio is 1.2, found 1.5."


def test_without_a_repair_the_pruned_model_is_judged() -> None:
    """It is what the job delivers."""
    assert not verdict("pruned", metric="perplexity_c4", max_ratio=8.9).passed
    assert verdict("pruned", metric="perplexity_c4", max_ratio=9.0).passed


@pytest.mark.parametrize("metric", ["acc_rte", "acc_boolq_norm"])
def test_what_nobody_measured_is_a_miss(metric: str) -> None:
    """A crashed harness must not let a checkpoint pass."""
    missed = verdict(metric=metric, min=0.0)
    assert not missed.passed
    assert "was not measured" in missed.error().message


def test_a_ratio_needs_the_dense_figure() -> None:
    """There is none of what compares with the dense model."""
    assert "kl_dense was not measured" in verdict(metric="kl", max_ratio=2).error().message


def test_a_ratio_to_nothing() -> None:
    """Answers without any repetition, before and after, keep each bound on it; new ones keep none."""
    bound = Bound.model_validate({"metric": "longest_repeat", "max_ratio": 1.5})
    for repeat, passes in ((0.0, True), (2.0, False)):
        figures = {"longest_repeat_dense": 0.0, "longest_repeat_repaired": repeat}
        assert judge([bound], figures, {}, "repaired").passed is passes


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("variant", ["dense", "pruned", "repaired"])
def test_a_metric_that_is_no_number_always_fails(value: float, variant: str) -> None:
    """Bounded or not; what only follows from others may be undefined."""
    missed = judge([], {**FIGURES, f"perplexity_{variant}": value}, DERIVED, "repaired")
    assert [check.metric for check in missed.misses] == [f"perplexity_{variant}"]
    assert judge([], FIGURES, DERIVED, "repaired").passed


def test_a_bound_on_no_number_is_a_miss_too() -> None:
    """Not-a-number is neither above nor below."""
    for limit in ("max", "min"):
        bound = Bound.model_validate({"metric": "kl", limit: 1.0})
        assert len(judge([bound], {"kl_repaired": math.nan}, {}, "repaired").misses) == 2
