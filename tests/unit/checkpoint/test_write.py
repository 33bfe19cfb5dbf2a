import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ghosted_core.checkpoint import write
from ghosted_core.errors import DiskFullError, OutputExistsError
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.spec import JobSpec
from tests.jobs import tiny_spec

RENAMED = {0: 0, 1: 1, 2: None, 3: None, 4: 2, 5: 3}


def run(spec: JobSpec, out: Path) -> Path:
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


def test_names_are_the_sources_and_values_its_own(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Each kept tensor has its source's name, renumbered, and its bits; the rest is the operator."""
    path = run(tiny_spec(tiny_folder, text_file, remove=[2, 3]), tmp_path / "out")
    source, written = load_file(tiny_folder / "model.safetensors"), load_file(path / "model.safetensors")
    for name, tensor in source.items():
        index = int(name.split(".")[2]) if name.startswith("model.layers.") else None
        if index is None:
            assert torch.equal(written.pop(name), tensor)
        elif RENAMED[index] is not None:
            new = name.replace(f"layers.{index}.", f"layers.{RENAMED[index]}.")
            assert torch.equal(written.pop(new), tensor)
    assert set(written) == {"model.layers.2.ghosted_operator.correction"}


def test_tied_weights_are_written_once(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """A tied head has no tensor of its own, as in the source."""
    path = run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out")
    with safe_open(path / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - no mapping
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("recovery", ["none", "ghosted"])
def test_companions_are_byte_for_byte(
    tiny_folder: Path, text_file: Path, tmp_path: Path, recovery: str
) -> None:
    """Tokenizer, chat template, generation config and licence are the source's, even odd ones."""
    path = run(tiny_spec(tiny_folder, text_file, remove=[2], recovery=recovery), tmp_path / "out")
    companions = [file for file in tiny_folder.iterdir() if file.suffix != ".safetensors"]
    names = {file.name for file in companions} - {"config.json"}
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json", "LICENSE"} <= names
    for name in names:
        assert (path / name).read_bytes() == (tiny_folder / name).read_bytes()


def test_large_models_are_sharded(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the shard size there is an index that names every tensor, and it loads."""
    monkeypatch.setattr(write, "SHARD_SIZE", "40KB")
    path = run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out")
    index = json.loads((path / "model.safetensors.index.json").read_text())
    names = [name for shard in path.glob("*.safetensors") for name in load_file(shard)]
    assert len(set(index["weight_map"].values())) > 1
    assert sorted(names) == sorted(index["weight_map"])


def test_an_occupied_folder_is_refused(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """What is there stays as it is."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("five years")
    with pytest.raises(OutputExistsError):
        run(tiny_spec(tiny_folder, text_file, remove=[2]), out)
    assert [file.name for file in out.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_is_used(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """mkdir first is no mistake."""
    (tmp_path / "out").mkdir()
    assert (run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out") / "ghosted.json").exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_nothing(
    tiny_folder: Path,
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: type[BaseException] | BaseException,
) -> None:
    """Neither the folder nor a temporary one is there; a full disk is a typed error."""

    def fail(*_: object) -> None:
        raise interruption

    monkeypatch.setattr(write, "copy_source_files", fail)
    with pytest.raises((KeyboardInterrupt, DiskFullError)):
        run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == []


def test_too_small_a_disk_is_noticed_before_the_work(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the numbers."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFullError, match=r"needs .* GB .* free"):
        run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out")


def test_the_folder_is_readable_like_any_other(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """The private mode of temporary folders does not survive."""
    path = run(tiny_spec(tiny_folder, text_file, remove=[2]), tmp_path / "out")
    plain = tmp_path / "plain"
    plain.mkdir()
    assert path.stat().st_mode == plain.stat().st_mode
    assert os.access(path / "config.json", os.R_OK)
