import pytest

from ghosted_core.spec import Bound
from services.dashboard.bounds import bound_lines, bounds_of
from services.errors import InvalidRequestError


def test_every_limit_can_be_written_as_a_line() -> None:
    """What is written is read as the spec has it, and written again is the same."""
    limits = {name: 0.5 for name in Bound.model_fields if name != "metric"}
    bounds = [Bound(metric="acc_boolq", **limits), Bound(metric="nll", max_rise=1e-9)]
    dumped = [bound.model_dump(mode="json") for bound in bounds]
    read = bounds_of(f"\n{bound_lines(dumped)}\n")
    assert [Bound.model_validate(one) for one in read] == bounds


@pytest.mark.parametrize(
    "line", ["perplexity", "perplexity:", "perplexity: max", "perplexity: max=low", "perplexity: most=2", ":"]
)
def test_other_lines_are_refused_with_an_example(line: str) -> None:
    """The error is the field's, and says how a bound is written."""
    with pytest.raises(InvalidRequestError, match="such as perplexity") as caught:
        bounds_of(line)
    assert caught.value.field == "evaluation.gate"
