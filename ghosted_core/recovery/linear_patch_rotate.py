from ghosted_core.hadamard import rotation
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import RecoveryOperator
from ghosted_core.recovery.scaling import ChannelScaling
from ghosted_core.spec import LinearPatchRotate
from ghosted_core.statistics import ROTATED_ENTERING, ROTATED_LEAVING, ROTATED_SHIFT, BoundaryStatistics

SCALING = ChannelScaling(entering=ROTATED_ENTERING, leaving=ROTATED_LEAVING, shift=ROTATED_SHIFT)


class LinearPatchRotateSolver:
    """x -> x H D H', H orthonormal Hadamard, D the ratios of LinearPatch measured after the rotation.

    Reference: LinearPatch, arXiv 2505.24680.
    """

    request = SCALING.request
    weighting = "uniform"
    sequential = False

    def __init__(self, settings: LinearPatchRotate) -> None:
        self.settings = settings

    def solve(
        self, boundary: Boundary, fit: BoundaryStatistics, held_out: BoundaryStatistics
    ) -> RecoveryOperator:
        """Measure D in the rotated basis; the report names the rotation.

        Raises:
            NonFiniteError: a ratio is infinite or not a number.
        """
        scales = SCALING.ratios(fit)
        turn = rotation(scales.shape[0])
        basis = turn.matrix.to(scales.device)
        detail = {
            "rotation": turn.name,
            "smallest_scale": float(scales.min()),
            "largest_scale": float(scales.max()),
        }
        # Rotating keeps norms: residual and norm in the rotated basis are those of the stream.
        report = SCALING.report(boundary, scales, fit, held_out, detail)
        correction = (basis * (scales - 1)) @ basis.mT
        return RecoveryOperator(boundary=boundary, correction=correction, report=report)
