"""How a cut is repaired. A further repair is one file here, one entry below and its form in `spec`."""

from collections.abc import Callable, Mapping
from typing import Any

from ghosted_core.recovery.base import FitReport, RecoveryOperator, RecoverySolver
from ghosted_core.recovery.ghosted import GhostedSolver
from ghosted_core.spec import Recovery

# From a repair's name to what makes its solver out of the settings; None: the cut stays as it is.
SOLVERS: Mapping[str, Callable[[Any], RecoverySolver] | None] = {
    "none": None,
    "ghosted": GhostedSolver,
}


def solver_for(recovery: Recovery) -> RecoverySolver | None:
    """The solver that `recovery` asks for; None if nothing is to be repaired."""
    make = SOLVERS[recovery.name]
    return make(recovery) if make is not None else None


__all__ = ["SOLVERS", "FitReport", "RecoveryOperator", "RecoverySolver", "solver_for"]
