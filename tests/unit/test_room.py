import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ghosted_cli.main import app
from ghosted_core import room
from ghosted_core.errors import DiskFullError
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import Logged, MemoryRecorder
from ghosted_core.spec import JobSpec
from ghosted_core.testing import tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model
from tests.unit.test_estimate import described

TEXT = ("--sequences", "4", "--sequence-length", "64")


def estimated(spec: JobSpec, folder: Path, removed: tuple[int, ...] = (2, 3)) -> Any:
    return room.estimate(spec, described(folder), PruningPlan.from_removed(removed, layer_count=6))


def test_what_fits_is_said_nothing_of_and_the_rest_with_numbers(tiny_folder: Path, text_file: Path) -> None:
    """A byte less than needed is too little, of memory and of disk alike; unknown is not too little."""
    needs = estimated(tiny_spec(tiny_folder, text_file, remove=[2, 3]), tiny_folder)
    memory, disk = needs.memory.peak_bytes, needs.disk.peak_bytes
    enough = room.Room("cpu", memory, memory, "/out", disk)
    assert room.shortages(needs, enough) == ()
    assert room.shortages(needs, replace(enough, memory_free_bytes=None)) == ()
    (of_memory,) = room.shortages(needs, replace(enough, memory_free_bytes=memory - 1))
    (of_disk,) = room.shortages(needs, replace(enough, disk_free_bytes=disk - 1))
    assert "memory of 'cpu'" in of_memory
    assert "disk space in '/out'" in of_disk
    assert f"{disk / 1e9:.3g} GB" in of_disk


def test_a_gpu_needs_the_machines_memory_too(tiny_folder: Path, text_file: Path) -> None:
    """Weights pass through it."""
    needs = estimated(tiny_spec(tiny_folder, text_file, remove=[2, 3]), tiny_folder)
    tight = room.Room("cuda", 10**12, needs.memory.weights_bytes - 1, "/out", 10**12)
    (sentence,) = room.shortages(needs, tight)
    assert "memory of this machine" in sentence


def test_this_machine_has_room_for_tiny_things(tmp_path: Path) -> None:
    """Figures are those of the system, for a folder that does not exist yet too."""
    found = room.room_on("cpu", tmp_path / "a" / "b")
    assert found.folder == str(tmp_path)
    assert found.disk_free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert found.memory_free_bytes is None or found.memory_free_bytes > 2**20


def test_limits_of_control_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container of 1000 bytes, 300 of 700 in use by old files, 600 are free; outer limits count too."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder, limit in ((inner, "1000"), (inner.parent, "max")):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text("700\n")
        (folder / "memory.stat").write_text("anon 400\ninactive_file 300\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/outer/inner\n")
    monkeypatch.setattr(room, "_GROUPS", tmp_path / "own")
    monkeypatch.setattr(room, "_GROUP_ROOT", tmp_path)
    assert room.room_on("cpu", tmp_path).memory_free_bytes == 600
    (inner.parent / "memory.max").write_text("500\n")
    assert room.room_on("cpu", tmp_path).memory_free_bytes == 100


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe"])
def test_the_least_is_no_more_than_any_choice_takes(model_type: str, text_file: Path, tmp_path: Path) -> None:
    """Whichever two layers go, also where layers differ in size; and exact where they are named."""
    folder = save_tiny_model(tiny_model(model_type), tmp_path / "source")
    spec = tiny_spec(folder, text_file)
    least = room.least_estimate(spec, described(folder)).disk.checkpoint_bytes
    pairs = [(a, b) for a in range(6) for b in range(a)]
    sizes = [estimated(spec, folder, pair).disk.checkpoint_bytes for pair in pairs]
    assert least <= min(sizes)
    named = tiny_spec(folder, text_file, remove=[1, 4])
    assert room.least_estimate(named, described(folder)) == estimated(named, folder, (1, 4))


def test_too_small_a_disk_is_noticed_before_a_weight_is_read(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are not even looked for."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.delattr("ghosted_core.pipeline.load_model")
    options = RunOptions(out=tmp_path / "out", cache=tmp_path)
    with pytest.raises(DiskFullError, match=r"needs .* GB .* free"):
        compress(tiny_spec(tiny_folder, text_file), options, MemoryRecorder())


def test_too_little_memory_is_logged_by_the_job(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the job goes on: the estimate may be wrong."""
    monkeypatch.setattr(room, "_host_free", lambda: 1000)
    recorder = MemoryRecorder()
    spec = tiny_spec(tiny_folder, text_file, remove=[2], evaluation=None)
    compress(spec, RunOptions(out=tmp_path / "out", cache=tmp_path), recorder)
    logged = [event.message for event in recorder.events if isinstance(event, Logged)]
    assert any("will not fit" in message and "memory" in message for message in logged)


def plan(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_a_plan_says_whether_it_fits(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """With what is free, for programs and for people."""
    arguments = (tiny_folder, "--layers", 2, "--calibration", text_file, *TEXT, "--out", tmp_path / "out")
    found = json.loads(plan(*arguments, "--json").stdout)
    assert found["fits"] is True
    assert found["shortages"] == []
    assert found["room"]["folder"] == str(tmp_path)
    assert found["room"]["disk_free_bytes"] > found["estimate"]["disk"]["peak_bytes"]
    assert "free now" in plan(*arguments).stdout


def test_a_plan_warns_of_what_will_not_fit(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the weights are read, and again at the end; it is still an answer, not a failure."""
    monkeypatch.setattr(room, "_host_free", lambda: 1000)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    arguments = (tiny_folder, "--layers", 2, "--calibration", text_file, *TEXT)
    result = plan(*arguments, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["fits"] is False
    assert len(found["shortages"]) == 2
    assert result.stderr.index("will not fit") < result.stderr.index("load")
    shown = plan(*arguments).stdout
    assert shown.count("This will not fit") == 2
