"""How a cut is repaired. A further repair is one file here, one entry below and its form in `spec`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ghosted_core.errors import UnsupportedRepairError
from ghosted_core.model.families import Block, Family
from ghosted_core.plan import PruningPlan
from ghosted_core.recovery.base import (
    FitReport,
    MlpMap,
    Outcome,
    RecoveryOperator,
    RecoverySolver,
    RecoveryTrainer,
    StoredActivations,
    StreamScale,
)
from ghosted_core.recovery.ghosted import GhostedSolver
from ghosted_core.recovery.linear_patch_diag import LinearPatchDiagSolver
from ghosted_core.recovery.linear_patch_rotate import LinearPatchRotateSolver
from ghosted_core.recovery.prune_and_comp import PruneAndCompSolver
from ghosted_core.recovery.replace_me import ReplaceMeSolver
from ghosted_core.recovery.replace_me_cosine import ReplaceMeCosineTrainer
from ghosted_core.spec import Recovery

ANY_BLOCK = frozenset(Block)
# Where each branch reads a normalized stream and adds to the bare one.
PRE_NORM = ANY_BLOCK - {Block.POST_NORM}
# Where a layer's output is a stream plus one dense, linear projection of the MLP.
DENSE_MLP_LAST = frozenset({Block.SEQUENTIAL_PRE_NORM})


@dataclass(frozen=True)
class Repair:
    """A repair's solver, and where it has a place.

    `make` builds the solver out of the settings; None: the cut stays as it is. `before_cut`: the repair
    changes the layer before the cut, so there must be one.
    """

    make: Callable[[Any], RecoverySolver | RecoveryTrainer] | None
    blocks: frozenset[Block] = ANY_BLOCK
    before_cut: bool = False


SOLVERS: Mapping[str, Repair] = {
    "none": Repair(None),
    "prune_and_comp": Repair(PruneAndCompSolver, blocks=PRE_NORM),
    "linear_patch_diag": Repair(LinearPatchDiagSolver),
    "linear_patch_rotate": Repair(LinearPatchRotateSolver),
    "replace_me": Repair(ReplaceMeSolver, blocks=DENSE_MLP_LAST, before_cut=True),
    "replace_me_cosine": Repair(ReplaceMeCosineTrainer, blocks=DENSE_MLP_LAST, before_cut=True),
    "ghosted": Repair(GhostedSolver),
}


def solver_for(recovery: Recovery) -> RecoverySolver | RecoveryTrainer | None:
    """The solver that `recovery` asks for; None if nothing is to be repaired."""
    make = SOLVERS[recovery.name].make
    return make(recovery) if make is not None else None


def check_applicable(recovery: Recovery, family: Family, plan: PruningPlan | None = None) -> None:
    """Make sure that the repair has a place in models of `family` and, once known, at the cuts of `plan`.

    Raises:
        UnsupportedRepairError: it has not; the message says why.
    """
    repair = SOLVERS[recovery.name]
    if family.block not in repair.blocks:
        raise UnsupportedRepairError(
            f"Repair '{recovery.name}' does not fit model type '{family.model_type}': "
            f"its layers are {family.block.described}."
        )
    if repair.before_cut and plan is not None and any(b.start == 0 for b in plan.boundaries):
        raise UnsupportedRepairError(
            f"Repair '{recovery.name}' changes the layer before a cut, and no layer is before layer 0.",
        )


__all__ = [
    "SOLVERS",
    "FitReport",
    "MlpMap",
    "Outcome",
    "RecoveryOperator",
    "RecoverySolver",
    "RecoveryTrainer",
    "Repair",
    "StoredActivations",
    "StreamScale",
    "check_applicable",
    "solver_for",
]
