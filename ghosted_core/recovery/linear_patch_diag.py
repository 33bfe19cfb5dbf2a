import torch

from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import RecoveryOperator
from ghosted_core.recovery.scaling import ChannelScaling
from ghosted_core.spec import LinearPatchDiag
from ghosted_core.statistics import ENTERING, LEAVING, SHIFT, BoundaryStatistics

SCALING = ChannelScaling(entering=ENTERING, leaving=LEAVING, shift=SHIFT)


class LinearPatchDiagSolver:
    """x -> x D, D = diag of mean over windows of mean_t |x_post| / mean_t |x_pre|.

    Reference: LinearPatch, arXiv 2505.24680.
    """

    request = SCALING.request
    weighting = "uniform"
    sequential = False

    def __init__(self, settings: LinearPatchDiag) -> None:
        self.settings = settings

    def solve(
        self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics
    ) -> RecoveryOperator:
        """Measure D.

        Raises:
            NonFiniteError: a ratio is infinite or not a number.
        """
        scales = SCALING.ratios(fit)
        detail = {"smallest_scale": float(scales.min()), "largest_scale": float(scales.max())}
        report = SCALING.report(boundary, scales, fit, held_out, detail)
        return RecoveryOperator(boundary=boundary, correction=torch.diag(scales - 1), report=report)
