"""How each cut was repaired: the fit in figures, the operator's spectrum as a chart."""

from dataclasses import dataclass

from services.dashboard.charts import Axis, Chart, Series
from services.dashboard.report_file import Fit, Report


@dataclass(frozen=True)
class Repair:
    """The repair of the boundary [start, stop).

    Residuals: 0 is perfect, 1 is what the cut without repair has. Shares are those of the operator's
    symmetric and anti-symmetric part, as norms over its own.
    """

    start: int
    stop: int
    method: str
    tokens: int
    held_out_tokens: int
    residual: float | None
    held_out_residual: float | None
    condition: float | None
    symmetric_share: float | None
    antisymmetric_share: float | None
    rank: int | None
    ridge: float | None
    norm: float | None


def repairs_of(report: Report) -> tuple[Repair, ...]:
    """One a boundary, in the model's order."""
    return tuple(_repair(fit) for fit in report.fits)


def _repair(fit: Fit) -> Repair:
    return Repair(
        start=fit.boundary.start,
        stop=fit.boundary.stop,
        method=fit.method,
        tokens=fit.tokens,
        held_out_tokens=fit.held_out_tokens,
        residual=fit.relative_residual,
        held_out_residual=fit.held_out_relative_residual,
        condition=fit.condition,
        symmetric_share=fit.symmetric_share,
        antisymmetric_share=fit.antisymmetric_share,
        rank=fit.rank,
        ridge=fit.ridge,
        norm=fit.correction_norm,
    )


def spectrum_chart(report: Report) -> Chart | None:
    """The singular values of each operator; None if no repair is an operator."""
    series = tuple(
        Series(
            name=f"layers {fit.boundary.start} to {fit.boundary.stop - 1}",
            x=fit.spectrum.rank,
            y=fit.spectrum.singular_value,
        )
        for fit in report.fits
        if fit.spectrum is not None and fit.spectrum.rank
    )
    if not series:
        return None
    return Chart(
        id="spectrum",
        title="Singular values of each operator M, as fitted",
        x=Axis("rank", logarithmic=True),
        y=Axis("singular value", logarithmic=True),
        series=series,
    )


def training_charts(report: Report) -> tuple[Chart, ...]:
    """The curve of the training after the repair, if there was one."""
    curve = () if report.finetune is None else report.finetune.curve
    told = [(point.step, point.loss) for point in curve if point.loss is not None]
    held = [(point.step, point.held_out_kl) for point in curve if point.held_out_kl is not None]
    series = tuple(
        Series(name=name, x=tuple(float(step) for step, _ in points), y=tuple(value for _, value in points))
        for name, points in (("held-out text", held), ("training loss", told))
        if points
    )
    if not series:
        return ()
    title = "Divergence from the dense model while training"
    return (Chart(id="training", title=title, x=Axis("step"), y=Axis("nats a token"), series=series),)
