from collections.abc import Callable, Collection

import pytest

from ghosted_core.criteria import CRITERIA, Criterion, Findings, LossCriterion, LossesWithout, criterion_for
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import Explicit, Magnitude, PerplexityWithout, Sleb, Taylor
from tests.planted import planted

LAYERS = 9
IMPORTANCE = (9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 4.0, 2.0, 1.0)


def measured(loss: Callable[[tuple[int, ...]], float]) -> LossesWithout:
    """Losses that depend on the layers left out alone."""

    def losses_without(removed: Collection[int], candidates: Collection[int]) -> dict[int, float]:
        return {layer: loss((*removed, layer)) for layer in candidates}

    return losses_without


def additive(costs: tuple[float, ...]) -> LossesWithout:
    """A loss to which each removed layer adds its own cost, in steps that float64 represents exactly."""
    return measured(lambda removed: 1.0 + sum(costs[layer] for layer in removed))


@pytest.mark.parametrize("name", ["shortgpt", "shortgpt_channel"])
def test_the_layers_of_least_influence_go(name: str) -> None:
    """Wherever they are; influence is 1 - cosine of input and output."""
    cosines = {(layer, layer + 1): 0.5 for layer in range(LAYERS)} | {(0, 1): 0.75, (5, 6): 1.0}
    scores = CRITERIA[name](None).choose(2, LAYERS, Findings(similarity=planted(LAYERS, cosines)))
    assert scores.removed == (0, 5)
    assert dict(scores.candidates)[0] == 0.25


def test_the_channel_form_never_scores_the_last_layer() -> None:
    """As the released code; token-wise ShortGPT has no such exception."""
    cosines = {(LAYERS - 1, LAYERS): 1.0}
    found = Findings(similarity=planted(LAYERS, cosines))
    assert CRITERIA["shortgpt"](None).choose(1, LAYERS, found).removed == (LAYERS - 1,)
    scores = CRITERIA["shortgpt_channel"](None).choose(1, LAYERS, found)
    assert scores.removed == (0,)
    assert scores.protected == (LAYERS - 1,)


@pytest.mark.parametrize("form", [Taylor(protect=False), Magnitude(protect=False)])
def test_the_least_important_layers_go_and_ties_are_told(form: Taylor | Magnitude) -> None:
    """Of equals the one nearest to the input; the other is reported."""
    scores = criterion_for(form).choose(3, LAYERS, Findings(importance=IMPORTANCE))
    assert scores.removed == (5, 7, 8)
    assert scores.ties == (6,)


@pytest.mark.parametrize("form", [Taylor(), Magnitude(), PerplexityWithout(protect=True)])
def test_plus_protects_the_first_4_and_the_last_2(form: Taylor | Magnitude | PerplexityWithout) -> None:
    """On by default for taylor and magnitude; n + 6 layers are needed, or a typed error says so."""
    criterion = criterion_for(form)
    found = Findings(importance=IMPORTANCE, losses_without=additive(IMPORTANCE))
    scores = criterion.choose(2, LAYERS, found)
    assert scores.removed == (5, 6)
    assert scores.protected == (0, 1, 2, 3, 7, 8)
    assert criterion.candidates(3, LAYERS) == (4, 5, 6)
    with pytest.raises(InvalidSpecError, match="at most 3 can go"):
        criterion.candidates(4, LAYERS)


def test_perplexity_is_not_protected_by_default() -> None:
    """Every layer is a candidate, scored by exp of its loss."""
    scores = criterion_for(PerplexityWithout()).choose(
        1, LAYERS, Findings(losses_without=additive(IMPORTANCE))
    )
    assert scores.removed == (8,)
    assert len(scores.candidates) == LAYERS


def test_sleb_scores_anew_after_each_removal() -> None:
    """Removing one layer changes what the next costs; first and last layer are never tried."""
    tried: list[tuple[int, ...]] = []

    def loss(removed: tuple[int, ...]) -> float:
        tried.append(tuple(removed))
        # Layer 3 is the cheapest; without it, layer 4 becomes dear and layer 6 cheap.
        costs = dict.fromkeys(range(LAYERS), 5.0) | {3: 1.0, 4: 2.0, 6: 3.0}
        if 3 in removed:
            costs |= {4: 9.0, 6: 1.0}
        return sum(costs[layer] for layer in removed)

    scores = criterion_for(Sleb()).choose(2, LAYERS, Findings(losses_without=measured(loss)))
    assert scores.removed == (3, 6)
    assert scores.steps == ((3, 1.0), (6, 2.0))
    assert not {0, LAYERS - 1} & {layer for removed in tried for layer in removed}


@pytest.mark.parametrize("form", [Sleb(), PerplexityWithout(), PerplexityWithout(protect=True)])
def test_the_number_of_evaluations_is_known_beforehand(form: Sleb | PerplexityWithout) -> None:
    """So that progress has a total."""
    criterion = criterion_for(form)
    asked: list[object] = []

    def loss(removed: tuple[int, ...]) -> float:
        asked.append(removed)
        return 1.0

    criterion.choose(3, LAYERS, Findings(losses_without=measured(loss)))
    assert isinstance(criterion, LossCriterion)
    assert criterion.evaluations(3, LAYERS) == len(asked)


def test_sleb_reports_ties_of_every_round() -> None:
    """Of equals the first goes."""
    scores = criterion_for(Sleb()).choose(
        2, LAYERS, Findings(losses_without=measured(lambda removed: float(len(removed))))
    )
    assert scores.removed == (1, 2)
    assert scores.ties == (2, 3, 4, 5, 6, 7)


def test_sleb_keeps_two_layers() -> None:
    """n = L - 1 is refused, with the limit as advice."""
    with pytest.raises(InvalidSpecError, match="the 7 layers from 1 to 7"):
        criterion_for(Sleb()).candidates(LAYERS - 1, LAYERS)


def test_named_layers_may_be_any() -> None:
    """The first and the last too; what does not exist is refused with the range."""
    assert criterion_for(Explicit(indices=(8, 0))).choose(2, LAYERS, Findings()).removed == (0, 8)
    with pytest.raises(InvalidSpecError, match="layers 0 to 8"):
        criterion_for(Explicit(indices=(9,))).candidates(1, LAYERS)


def test_missing_evidence_is_a_fault_of_the_caller() -> None:
    """Not a wrong choice."""
    makers: list[Criterion] = [criterion_for(form) for form in (Taylor(), Sleb())] + [
        CRITERIA["angular"](None)
    ]
    for criterion in makers:
        with pytest.raises(ValueError, match="nobody gathered"):
            criterion.choose(1, LAYERS, Findings())
