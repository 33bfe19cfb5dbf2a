import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ghosted_core.stage_cache.entry import Entry, TornEntryError, load_entry, save_entry

KEY = "a" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An entry on disk."""
    tensors = {"sums": torch.arange(12, dtype=torch.float64).view(3, 4), "tokens": torch.tensor(7)}
    save_entry(tmp_path / "entry", KEY, Entry(tensors, '{"a": 0.1}'))
    return tmp_path / "entry"


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path, generator: torch.Generator) -> None:
    """Tensors of any layout and the facts."""
    wide = torch.randn(5, 7, dtype=torch.float64, generator=generator)
    before = Entry(
        {"transposed": wide.mT, "none": torch.empty(0, 3), "one": torch.tensor(3)}, "[0.1, 1e-300]"
    )
    save_entry(tmp_path / "entry", KEY, before)
    after = load_entry(tmp_path / "entry", KEY)
    assert after.facts == before.facts
    assert after.tensors.keys() == before.tensors.keys()
    assert all(torch.equal(after.tensors[name], tensor) for name, tensor in before.tensors.items())


def test_another_key_is_refused(file: Path) -> None:
    """The file says where it belongs."""
    with pytest.raises(TornEntryError, match="another key"):
        load_entry(file, "b" * 64)


def test_every_flipped_byte_is_noticed(file: Path) -> None:
    """Wherever it is: lengths, names, label, numbers."""
    whole = file.read_bytes()
    before = load_entry(file, KEY)
    for place in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x11
        file.write_bytes(spoilt)
        with pytest.raises(TornEntryError):
            load_entry(file, KEY)
    assert before.facts


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_cut_file_is_noticed(file: Path, share: float) -> None:
    """As a crash while writing leaves it."""
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(TornEntryError):
        load_entry(file, KEY)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Missing, no safetensors, safetensors of others, a label of a later format, a header without end."""
    save_file({"a": torch.ones(2)}, tmp_path / "weights")
    label = json.dumps({"format": 2, "key": KEY, "sha256": "", "facts": ""})
    save_file({"a": torch.ones(2)}, tmp_path / "later", metadata={"ghosted_stage": label})
    (tmp_path / "text").write_text("no tensors here")
    (tmp_path / "endless").write_bytes(struct.pack("<Q", 1 << 60))
    (tmp_path / "folder").mkdir()
    for name in ("missing", "weights", "later", "text", "endless", "folder"):
        with pytest.raises(TornEntryError):
            load_entry(tmp_path / name, KEY)
