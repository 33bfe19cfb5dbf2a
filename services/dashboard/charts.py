"""Charts as data: what charts.js draws, and what the table beside it says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """What runs along one side."""

    title: str
    logarithmic: bool = False


@dataclass(frozen=True)
class Series:
    """Points of one name: a line, markers, or both. `labels` name the points, `links` are where they lead."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    mode: str = "lines+markers"
    labels: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A figure with an id, unique in its page."""

    id: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
