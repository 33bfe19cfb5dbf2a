"""The header of a safetensors file, checked before anything maps the file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghosted_core.checkpoint.strict_json import parse_json_object
from ghosted_core.errors import CorruptModelError

MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
LENGTH_BYTES = 8
ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies: bytes [start, stop) of the data that follow the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of the file by name; their spans fill the file without gap or overlap.

    Raises:
        CorruptModelError: the header is too long, malformed, or contradicts itself or the file size.
    """
    content, data_bytes = _read_raw(path)
    document = parse_json_object(content, f"The header of {path.name}")
    _check_metadata(document.pop("__metadata__", {}), path)
    entries = {name: _entry(name, value, path) for name, value in document.items()}
    _check_coverage(entries, data_bytes, path)
    return entries


def _read_raw(path: Path) -> tuple[bytes, int]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
            # Compared with the file before reading: the length is the stranger's word.
            if size < LENGTH_BYTES or header_bytes > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
                raise CorruptModelError(f"{path.name} is cut short or states a false header length.")
            return file.read(header_bytes), size - LENGTH_BYTES - header_bytes
    except OSError as error:
        raise CorruptModelError(f"{path.name} cannot be read.") from error


def _check_metadata(metadata: Any, path: Path) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptModelError(f"The metadata of {path.name} is not a table of texts.")


def _entry(name: str, value: Any, path: Path) -> TensorEntry:
    where = f"Tensor '{name[:200]}' in {path.name}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CorruptModelError(f"{where} lacks dtype, shape or data_offsets.")
    dtype, shape, span = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise CorruptModelError(f"{where} has a dtype that is not known.")
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS or not _naturals(span) or len(span) != 2:  # noqa: PLR2004
        raise CorruptModelError(f"{where} has a malformed shape or span.")
    if span[1] - span[0] != math.prod(shape) * ITEM_BYTES[dtype]:
        raise CorruptModelError(f"{where} does not have as many bytes as its shape needs.")
    return TensorEntry(dtype, tuple(shape), span[0], span[1])


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_coverage(entries: Mapping[str, TensorEntry], data_bytes: int, path: Path) -> None:
    position = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            raise CorruptModelError(f"The tensors of {path.name} overlap or leave a gap.")
        position = entry.stop
    if position != data_bytes:
        raise CorruptModelError(
            f"{path.name} holds {data_bytes} bytes of tensors, but its header names {position}."
        )
