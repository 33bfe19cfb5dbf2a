import torch

from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import StreamScale
from ghosted_core.recovery.scaling import ChannelScaling
from ghosted_core.spec import PruneAndComp
from ghosted_core.statistics import ENTERING, LEAVING, SHIFT, BoundaryStatistics

SCALING = ChannelScaling(entering=ENTERING, leaving=LEAVING, shift=SHIFT)


class PruneAndCompSolver:
    """The stream is multiplied by c, the mean over channels of LinearPatch's ratios.

    Reference: Prune&Comp, arXiv 2507.18212.
    """

    request = SCALING.request
    weighting = "uniform"
    sequential = False

    def __init__(self, settings: PruneAndComp) -> None:
        self.settings = settings

    def solve(self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics) -> StreamScale:
        """Measure c.

        Raises:
            NonFiniteError: a ratio is infinite or not a number.
        """
        ratios = SCALING.ratios(fit)
        factor = float(ratios.mean())
        scales = torch.full_like(ratios, factor)
        report = SCALING.report(boundary, scales, fit, held_out, {"factor": factor})
        return StreamScale(boundary=boundary, factor=factor, report=report)
