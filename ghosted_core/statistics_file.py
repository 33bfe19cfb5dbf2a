"""Statistics of a calibration on disk: sums made in one place are merged and solved in another."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ghosted_core.errors import DataError
from ghosted_core.plan import Boundary
from ghosted_core.statistics import (
    BoundaryStatistics,
    Combination,
    Feature,
    Pair,
    Precision,
    StatisticsRequest,
)

HEADER = "ghosted_statistics"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Combination(_Part):
    name: str
    terms: tuple[tuple[Feature, float], ...]
    rotated: bool

    @classmethod
    def of(cls, combination: Combination) -> "_Combination":
        return cls(name=combination.name, terms=combination.terms, rotated=combination.rotated)

    def read(self) -> Combination:
        return Combination(self.name, self.terms, self.rotated)


class _Boundary(_Part):
    """All of the sums of a boundary but the tensors, which are named by kind and place in the request."""

    start: int
    stop: int
    products: tuple[tuple[_Combination, _Combination], ...]
    diagonals: tuple[tuple[_Combination, _Combination], ...]
    ratios: tuple[tuple[_Combination, _Combination], ...]
    energies: tuple[tuple[_Combination, float], ...]
    # Of the energies, in their order; none in files of versions that did not know them.
    openings: tuple[float, ...] = ()
    tokens: int
    windows: int
    weight: float
    precision: Precision
    product_error: float


class _Header(_Part):
    format: int
    boundaries: tuple[_Boundary, ...]


def save_statistics(path: Path, statistics: Mapping[Boundary, BoundaryStatistics]) -> None:
    """Write one safetensors file: the sums as tensors, what they are in its metadata; nothing pickled.

    The file appears whole or not at all.
    """
    tensors, header = pack_statistics(statistics)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        save_file(tensors, partial, metadata={HEADER: header})
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_statistics(path: Path) -> dict[Boundary, BoundaryStatistics]:
    """What `save_statistics` wrote, bit for bit, on the CPU.

    Raises:
        DataError: the file is not there, or not one of these.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER, "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as error:
        raise DataError(f"'{path.name}' is not a file of statistics ({type(error).__name__}).") from error
    return unpack_statistics(tensors, header, name=path.name)


def pack_statistics(statistics: Mapping[Boundary, BoundaryStatistics]) -> tuple[dict[str, Tensor], str]:
    """The sums as tensors by name, on the CPU, and as JSON text what they are."""
    tensors = {
        f"{boundary.start}.{kind}.{index}": totals[pair].cpu().contiguous()
        for boundary, sums in statistics.items()
        for kind, pairs, totals in _kinds(sums)
        for index, pair in enumerate(pairs)
        if pair in totals
    }
    header = _Header(format=1, boundaries=tuple(_describe(b, sums) for b, sums in statistics.items()))
    return tensors, header.model_dump_json()


def unpack_statistics(
    tensors: Mapping[str, Tensor], header: str, *, name: str
) -> dict[Boundary, BoundaryStatistics]:
    """What `pack_statistics` was given, bit for bit, where the tensors are; `name` is for the error.

    Raises:
        DataError: these are not statistics, or not all of them.
    """
    try:
        parts = _Header.model_validate_json(header).boundaries
    except ValidationError as error:
        raise DataError(f"'{name}' is not a file of statistics ({type(error).__name__}).") from error
    found = {Boundary(part.start, part.stop): _read(part, tensors) for part in parts}
    for sums in found.values():
        _check(name, sums)
    return found


def _kinds(sums: BoundaryStatistics) -> tuple[tuple[str, tuple[Pair, ...], dict[Pair, Tensor]], ...]:
    return (
        ("products", sums.request.products, sums.products),
        ("diagonals", sums.request.diagonals, sums.diagonals),
        ("ratios", sums.request.ratios, sums.ratios),
    )


def _describe(boundary: Boundary, sums: BoundaryStatistics) -> _Boundary:
    pairs: dict[str, Any] = {
        kind: [tuple(_Combination.of(side) for side in pair) for pair in pairs]
        for kind, pairs, _ in _kinds(sums)
    }
    energies = tuple((_Combination.of(c), sums.energies.get(c, 0.0)) for c in sums.request.energies)
    return _Boundary(
        start=boundary.start,
        stop=boundary.stop,
        energies=energies,
        openings=tuple(sums.openings[c] for c in sums.request.energies if c in sums.openings),
        tokens=sums.tokens,
        windows=sums.windows,
        weight=sums.weight,
        precision=sums.request.precision,
        product_error=sums.product_error,
        **pairs,
    )


def _read(part: _Boundary, tensors: Mapping[str, Tensor]) -> BoundaryStatistics:
    request = StatisticsRequest(
        products=_pairs(part.products),
        diagonals=_pairs(part.diagonals),
        ratios=_pairs(part.ratios),
        energies=tuple(combination.read() for combination, _ in part.energies),
        precision=part.precision,
    )
    sums = BoundaryStatistics(
        request,
        energies={combination.read(): value for combination, value in part.energies} if part.tokens else {},
        openings=dict(zip(request.energies, part.openings, strict=False)),
        tokens=part.tokens,
        windows=part.windows,
        weight=part.weight,
        product_error=part.product_error,
    )
    for kind, pairs, totals in _kinds(sums):
        for index, pair in enumerate(pairs):
            name = f"{part.start}.{kind}.{index}"
            if name in tensors:
                totals[pair] = tensors[name]
    return sums


def _pairs(pairs: tuple[tuple[_Combination, _Combination], ...]) -> tuple[Pair, ...]:
    return tuple((left.read(), right.read()) for left, right in pairs)


def _check(name: str, sums: BoundaryStatistics) -> None:
    complete = all(pair in totals for _, pairs, totals in _kinds(sums) for pair in pairs)
    if sums.windows and not complete:
        raise DataError(f"'{name}' lacks sums that it should hold.")
    wide = all(t.dtype == torch.float64 for _, _, totals in _kinds(sums) for t in totals.values())
    if not wide:
        raise DataError(f"'{name}' holds sums that are not float64.")
