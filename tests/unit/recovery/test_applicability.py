from dataclasses import replace

import pytest

from ghosted_core.errors import UnsupportedRepairError
from ghosted_core.model.families import Block, family_of
from ghosted_core.plan import PruningPlan
from ghosted_core.recovery import SOLVERS, check_applicable
from tests.repairing import recovery_of

ANYWHERE = {"none", "linear_patch_diag", "linear_patch_rotate", "ghosted"}
FITTING = {
    Block.SEQUENTIAL_PRE_NORM: set(SOLVERS),
    Block.PARALLEL: ANYWHERE | {"prune_and_comp"},
    Block.EXPERTS: ANYWHERE | {"prune_and_comp"},
    Block.POST_NORM: ANYWHERE,
}


@pytest.mark.parametrize("block", Block)
@pytest.mark.parametrize("name", SOLVERS)
def test_each_repair_applies_where_the_method_says(block: Block, name: str) -> None:
    """By the kind of block alone, and the refusal names repair and model type."""
    family = replace(family_of("llama"), block=block)
    if name in FITTING[block]:
        check_applicable(recovery_of(name), family)
        return
    with pytest.raises(UnsupportedRepairError, match=f"'{name}'.*llama"):
        check_applicable(recovery_of(name), family)


@pytest.mark.parametrize("name", SOLVERS)
def test_what_changes_the_layer_before_needs_one(name: str) -> None:
    """A cut at layer 0 has none before it; any other cut has."""
    family = family_of("llama")
    check_applicable(recovery_of(name), family, PruningPlan.from_removed([1, 5], layer_count=6))
    edge = PruningPlan.from_removed([0, 3], layer_count=6)
    if name not in {"replace_me", "replace_me_cosine"}:
        check_applicable(recovery_of(name), family, edge)
        return
    with pytest.raises(UnsupportedRepairError, match="layer 0"):
        check_applicable(recovery_of(name), family, edge)
