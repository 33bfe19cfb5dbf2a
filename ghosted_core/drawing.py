"""Charts as coordinates: the page's template draws them as SVG."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, MARGIN = 640.0, 180.0, 24.0


@dataclass(frozen=True)
class Bar:
    """A rectangle over its label."""

    label: str
    value: float
    x: float
    y: float
    width: float
    height: float
    marked: bool


@dataclass(frozen=True)
class Bars:
    """One bar a candidate; the axis runs from `low` at the bottom to `high`."""

    title: str
    bars: tuple[Bar, ...]
    low: float
    high: float
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class Curve:
    """A line over logarithmic axes; `points` as the attribute of an SVG polyline has them."""

    points: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT


def bars(values: Sequence[tuple[int, float]], *, marked: Collection[int], title: str) -> Bars:
    """A chart of finite `values` by label, those in `marked` set apart.

    Scores are often all alike but for their last digits, so the axis starts a little below the lowest.
    """
    scores = [value for _, value in values]
    low, high = min(scores), max(scores)
    floor = low - 0.1 * (high - low or abs(high) or 1.0)
    step = (WIDTH - 2 * MARGIN) / len(values)
    drawn = []
    for place, (label, value) in enumerate(values):
        height = (HEIGHT - 2 * MARGIN) * _share(value, floor, high)
        corner = (MARGIN + place * step, HEIGHT - MARGIN - height)
        x, y, across, up = (round(size, 2) for size in (*corner, 0.8 * step, height))
        drawn.append(Bar(str(label), value, x, y, across, up, label in marked))
    return Bars(title, tuple(drawn), floor, high)


def curve(x: Sequence[float], y: Sequence[float]) -> Curve | None:
    """The line through the points whose coordinates are finite and above 0; None if there are not two."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 and b > 0 and math.isfinite(a * b)]
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    xs, ys = [math.log10(a) for a, _ in points], [math.log10(b) for _, b in points]
    placed = (
        f"{MARGIN + (WIDTH - 2 * MARGIN) * _share(a, min(xs), max(xs)):.2f},"
        f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * _share(b, min(ys), max(ys)):.2f}"
        for a, b in zip(xs, ys, strict=True)
    )
    heights = [b for _, b in points]
    return Curve(" ".join(placed), (points[0][0], points[-1][0]), (min(heights), max(heights)))


@dataclass(frozen=True)
class Line:
    """A line over linear axes, x from 0; `points` as the attribute of an SVG polyline has them."""

    points: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT


def lines(*all_points: Sequence[tuple[float, float]]) -> tuple[Line | None, ...]:
    """Lines on common axes, each through its points; None for one of fewer than two."""
    ys = [y for points in all_points for _, y in points]
    most = max((x for points in all_points for x, _ in points), default=0.0)
    low, high = min(ys, default=0.0), max(ys, default=0.0)
    return tuple(_line(points, float(most), low, high) for points in all_points)


def _line(points: Sequence[tuple[float, float]], most: float, low: float, high: float) -> Line | None:
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    placed = (
        f"{MARGIN + (WIDTH - 2 * MARGIN) * _share(x, 0.0, most):.2f},"
        f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * _share(y, low, high):.2f}"
        for x, y in points
    )
    return Line(" ".join(placed), (0.0, most), (low, high))


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 1.0
