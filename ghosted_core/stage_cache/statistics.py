"""Calibration sums, taken over from an earlier run: one entry a boundary, request and set of windows.

A request for exactly these sums is served, never a part of a larger one: to gather for every job what
some other repair might ask for would cost each of them matrices of width x width it has no use for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ghosted_core.data import Windows
from ghosted_core.plan import Boundary
from ghosted_core.recovery import RecoverySolver
from ghosted_core.stage_cache.entry import Entry
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import tokens_digest
from ghosted_core.statistics import BoundaryStatistics, StatisticsRequest
from ghosted_core.statistics_file import pack_statistics, unpack_statistics

SUMS = "calibration sums"


@dataclass(frozen=True)
class Asked:
    """Which sums, weighted how, over which text."""

    request: StatisticsRequest
    weighting: str
    windows: Windows

    @classmethod
    def by(cls, solver: RecoverySolver, windows: Windows) -> "Asked":
        """What `solver` asks of `windows`."""
        return cls(solver.request, solver.weighting, windows)

    def question(self, boundary: Boundary) -> dict[str, Any]:
        """What determines the sums at `boundary`, as JSON values."""
        return {
            "stage": "calibrate",
            "boundary": [boundary.start, boundary.stop],
            "request": asdict(self.request),
            "weighting": self.weighting,
            "tokens": tokens_digest(self.windows.tokens),
        }


def recall_statistics(
    keeping: Keeping, boundaries: Sequence[Boundary], asked: Asked, device: torch.device
) -> dict[Boundary, BoundaryStatistics]:
    """The sums of those boundaries that are known, on `device`; of no text, all are."""
    if not asked.windows.tokens.numel():
        return {boundary: BoundaryStatistics(asked.request) for boundary in boundaries}
    known = {}
    for boundary in boundaries:

        def read(entry: Entry, boundary: Boundary = boundary) -> BoundaryStatistics:
            found = unpack_statistics(entry.tensors, entry.facts, name=SUMS)[boundary]
            if found.request != asked.request:
                raise ValueError("sums of another request")
            return _on(found, device)

        found = keeping.recall(asked.question(boundary), SUMS, read)
        if found is not None:
            known[boundary] = found
    return known


def keep_statistics(
    keeping: Keeping, statistics: Mapping[Boundary, BoundaryStatistics], asked: Asked
) -> None:
    """Later runs find these sums, a boundary at a time: no more than one is copied at once."""
    for boundary, sums in statistics.items():
        tensors, facts = pack_statistics({boundary: sums})
        keeping.keep(asked.question(boundary), SUMS, Entry(tensors, facts))


def say_what_is_known(keeping: Keeping, known: int, boundaries: int) -> None:
    """The user learns what was not computed."""
    if known == boundaries:
        keeping.say("The calibration sums were taken from an earlier run.")
    elif known:
        keeping.say(
            f"The calibration sums of {known} of {boundaries} boundaries were taken from an earlier run."
        )


def _on(sums: BoundaryStatistics, device: torch.device) -> BoundaryStatistics:
    def moved(totals: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
        return {pair: total.to(device) for pair, total in totals.items()}

    return replace(
        sums,
        products=moved(sums.products),
        diagonals=moved(sums.diagonals),
        ratios=moved(sums.ratios),
    )
