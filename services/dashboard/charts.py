"""Charts as data: what charts.js draws, and what the table beside it says."""

import re
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from services.dashboard import assets

LIBRARY = "plotly.min.js"
# How parts of the library find out whether their style sheet is in the page already.
_MARK = re.compile(rb'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')

Value = float | str | None


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

    @property
    def data(self) -> dict[str, Any]:
        """The same as plain values, for the page's script."""
        return asdict(self)

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the table: what is along the x axis, then each series, or its points by name."""
        if self._names_points:
            return ("", self.x.title, self.y.title)
        return (self.x.title, *(one.name for one in self.series))

    @property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """The rows of the table."""
        if self._names_points:
            return tuple(
                point for one in self.series for point in zip(one.labels, one.x, one.y, strict=False)
            )
        columns = [dict(zip(one.x, one.y, strict=True)) for one in self.series]
        places = sorted({place for column in columns for place in column})
        return tuple((place, *(column.get(place) for column in columns)) for place in places)

    @property
    def _names_points(self) -> bool:
        return any(one.labels for one in self.series)


@cache
def style_marks() -> str:
    """The ids by which the library's parts would recognise their own style sheets, with spaces between.

    They are those of maps, which no page of ours has. Inline as they are, the Content-Security-Policy
    refuses them; charts.js makes the parts believe that they are there.
    """
    return " ".join(sorted({mark.decode() for mark in _MARK.findall(assets.assets()[LIBRARY].content)}))
