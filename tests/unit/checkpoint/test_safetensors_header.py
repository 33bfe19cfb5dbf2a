import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from ghosted_core.checkpoint.safetensors_header import read_header
from ghosted_core.errors import CorruptModelError, SourceError
from tests.model_folders import safetensors_bytes


def entry(dtype: Any = "F32", shape: Any = (2,), span: Any = (0, 8)) -> dict[str, Any]:
    """A header entry, sound unless told otherwise."""
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


def written(folder: Path, content: bytes) -> Path:
    """A file of that content."""
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


def test_agrees_with_the_library(tmp_path: Path) -> None:
    """What the safetensors library wrote is read with its names, shapes and spans."""
    generator = np.random.default_rng(0)
    tensors: dict[str, npt.NDArray[Any]] = {
        "a": generator.normal(size=(3, 4)).astype(np.float32),
        "b": generator.normal(size=(5,)).astype(np.float16),
        "c": np.zeros((0, 2), np.float32),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    header = read_header(tmp_path / "model.safetensors")
    assert {name: found.shape for name, found in header.items()} == {n: t.shape for n, t in tensors.items()}
    assert {name: found.stop - found.start for name, found in header.items()} == {
        name: tensor.nbytes for name, tensor in tensors.items()
    }


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(dtype="F33")},
        {"a": entry(dtype=4)},
        {"a": entry(shape=[3])},
        {"a": entry(shape=[-2])},
        {"a": entry(shape=[2.0])},
        {"a": entry(shape=[True, 2])},
        {"a": entry(shape="2")},
        {"a": entry(shape=[1] * 9)},
        {"a": entry(span=[8, 0])},
        {"a": entry(span=[-8, 0])},
        {"a": entry(span=[0])},
        {"a": entry(shape=[2**40, 2**40])},
        {"a": {"dtype": "F32", "shape": [2]}},
        {"a": {**entry(), "more": 1}},
        {"a": []},
        {"__metadata__": {"format": 1}, "a": entry()},
        {"__metadata__": [], "a": entry()},
        ["a"],
    ],
    ids=str,
)
def test_entries_must_make_sense(tmp_path: Path, header: Any) -> None:
    """Dtype, shape and span are each well-formed and agree with each other."""
    with pytest.raises(CorruptModelError):
        read_header(written(tmp_path, safetensors_bytes(header, bytes(8))))


@pytest.mark.parametrize(
    ("header", "data_bytes"),
    [
        ({"a": entry()}, 7),
        ({"a": entry()}, 9),
        ({"a": entry(), "b": entry(span=[4, 12])}, 12),
        ({"a": entry(), "b": entry()}, 8),
        ({"a": entry(), "b": entry(span=[16, 24])}, 24),
        ({"a": entry(span=[8, 16])}, 16),
        ({"a": entry(span=[2**60, 2**60 + 8])}, 8),
        ({}, 8),
    ],
    ids=["cut", "padded", "overlap", "same", "gap", "late", "outside", "unnamed"],
)
def test_spans_cover_the_file(tmp_path: Path, header: Any, data_bytes: int) -> None:
    """The tensors fill the data exactly: no gap, no overlap, nothing outside, nothing unnamed."""
    with pytest.raises(CorruptModelError):
        read_header(written(tmp_path, safetensors_bytes(header, bytes(data_bytes))))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 3) + b"{}",
        struct.pack("<Q", 200_000_000) + b"{}",
        struct.pack("<Q", 2) + b"{]",
        struct.pack("<Q", 2) + b"\xff\xff",
        struct.pack("<Q", 2) + b"[]",
    ],
    ids=["empty", "short", "huge", "beyond", "over the cap", "malformed", "binary", "list"],
)
def test_false_lengths_and_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    """The stated length is compared with the file before it is believed."""
    with pytest.raises(CorruptModelError):
        read_header(written(tmp_path, content))


def test_the_cap_is_checked_before_reading(tmp_path: Path) -> None:
    """A header above the cap is refused even where the file is that long."""
    path = written(tmp_path, struct.pack("<Q", 150_000_000))
    with path.open("r+b") as file:
        file.truncate(200_000_000)  # Sparse: it takes no room on the disk.
    with pytest.raises(CorruptModelError, match="false header length"):
        read_header(path)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    """Two parsers could pick different ones of two entries of one name."""
    inner = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    header = f'{{"a":{inner},"a":{inner}}}'.encode()
    with pytest.raises(SourceError):
        read_header(written(tmp_path, struct.pack("<Q", len(header)) + header + bytes(8)))
