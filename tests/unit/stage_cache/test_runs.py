"""Whole jobs that start from what earlier ones left."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from ghosted_core.pipeline import JobResult, RunOptions, compress
from ghosted_core.recorder import Logged, MemoryRecorder, StageFinished, StageProgressed, StageStarted
from ghosted_core.stage_cache import FolderStageCache
from tests.jobs import tiny_spec

SCORES = "The scores were taken from an earlier run."
SUMS = "The calibration sums were taken from an earlier run."
REPAIRS = "The repairs were taken from an earlier run."
Run = Callable[..., tuple[JobResult, MemoryRecorder]]


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    return tmp_path / "stages"


@pytest.fixture
def run(tiny_folder: Path, text_file: Path, tmp_path: Path, stages: Path) -> Run:
    """A job with a stage cache; a new folder each time."""
    count = 0

    def go(**changes: Any) -> tuple[JobResult, MemoryRecorder]:
        nonlocal count
        count += 1
        spec = tiny_spec(tiny_folder, text_file, **{"evaluation": None, **changes})
        memory = MemoryRecorder()
        cache = FolderStageCache(stages)
        options = RunOptions(out=tmp_path / f"out{count}", cache=tmp_path / "cache", stages=cache)
        return compress(spec, options, memory), memory

    return go


def logs(memory: MemoryRecorder) -> list[str]:
    return [e.message for e in memory.events if isinstance(e, Logged) and "earlier run" in e.message]


def weights(result: JobResult) -> bytes:
    return (result.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [SCORES, SUMS]),
        ({"remove": [1, 3, 4]}, [SUMS]),
        ({"strategy": "taylor", "layers": 1}, [SCORES, SUMS]),
        ({"strategy": "magnitude", "layers": 1}, [SCORES, SUMS]),
        ({"strategy": "perplexity"}, [SCORES, SUMS]),
        ({"strategy": "sleb", "recovery": "none"}, [SCORES]),
        ({"recovery": {"name": "ghosted", "fit": "sequential"}, "remove": [1, 3, 4]}, [REPAIRS]),
        ({"recovery": {"name": "replace_me_cosine", "epochs": 1}, "remove": [1, 3]}, [REPAIRS]),
        ({"recovery": "prune_and_comp", "remove": [1, 3]}, [SUMS]),
    ],
)
def test_the_same_job_again_takes_all_and_ends_with_the_same_bits(
    run: Run, changes: dict[str, Any], expected: list[str]
) -> None:
    """Same layers, same manifest, equal bytes of weights; and the user is told."""
    if changes.get("strategy") in {"taylor", "magnitude"}:
        changes = {**changes, "strategy": {"name": changes["strategy"], "protect": False}}
    first, before = run(**changes)
    second, after = run(**changes)
    assert logs(before) == []
    assert logs(after) == expected
    assert second.manifest.model_dump_json() == first.manifest.model_dump_json()
    assert weights(second) == weights(first)


def test_progress_reaches_its_total_all_the_same(run: Run) -> None:
    """A stage that has nothing to do says so by being done."""
    run()
    _, memory = run()
    totals = {e.stage: e.total for e in memory.events if isinstance(e, StageStarted)}
    done = {e.stage: e.done for e in memory.events if isinstance(e, StageProgressed)}
    assert done == totals
    assert {e.stage for e in memory.events if isinstance(e, StageFinished)} == totals.keys()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"recovery": "linear_patch_diag"}, [SCORES]),
        ({"recovery": {"name": "ghosted", "ridge": 0.5}}, [SCORES, SUMS]),
        ({"evaluation": {"windows": 2, "prompts": []}}, [SCORES, SUMS]),
        ({"strategy": "shortgpt"}, [SCORES]),
        ({"layers": 1}, [SCORES]),
        ({"dtype": "bfloat16"}, []),
        ({"strategy": {"name": "taylor", "protect": False}, "layers": 1}, []),
    ],
)
def test_another_job_starts_from_what_it_shares(
    run: Run, changes: dict[str, Any], expected: list[str]
) -> None:
    """Another recovery, evaluation, criterion of one pass or number of layers; not another dtype."""
    run()
    taken, memory = run(**changes)
    assert [line for line in logs(memory) if line in {SCORES, SUMS}] == expected
    assert taken.manifest.plan.removed


def test_what_was_taken_is_what_would_have_been_computed(run: Run, stages: Path, tmp_path: Path) -> None:
    """A job that starts from another's scores ends as one that starts from nothing."""
    run()
    taken, _ = run(recovery="linear_patch_diag", strategy="shortgpt")
    stages.rename(tmp_path / "away")
    anew, memory = run(recovery="linear_patch_diag", strategy="shortgpt")
    assert logs(memory) == []
    assert weights(taken) == weights(anew)


def test_losses_are_shared_one_by_one(run: Run) -> None:
    """SLEB's first round measures what the perplexity criterion has measured already."""
    window = {"sequences": 4, "sequence_length": 32}
    run(strategy={"name": "perplexity", **window}, recovery="none")
    sleb, memory = run(strategy={"name": "sleb", **window}, recovery="none")
    assert logs(memory) == ["4 of 7 losses behind the scores were taken from an earlier run."]
    assert len(sleb.manifest.plan.scores["steps"]) == 2


def spoil_by_cutting(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def spoil_by_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def spoil_by_replacing(file: Path) -> None:
    save_file({"token_cosines": torch.ones(7, 7)}, file)


@pytest.mark.parametrize("spoil", [spoil_by_cutting, spoil_by_a_bit, spoil_by_replacing])
def test_torn_entries_are_ignored_and_written_anew(
    run: Run, stages: Path, spoil: Callable[[Path], None]
) -> None:
    """Scores and sums: said, computed anew, and whole for the third run."""
    first, _ = run()
    entries = sorted(stages.iterdir())
    # Not load_file: its tensors are views of the file that is about to be spoilt.
    whole = {file.name: load(file.read_bytes()) for file in entries}
    assert len(entries) == 3
    for file in entries:
        spoil(file)
    second, memory = run()
    assert len([line for line in logs(memory) if re.search("damaged .*: it is ignored", line)]) == 3
    assert weights(second) == weights(first)
    for file in sorted(stages.iterdir()):
        assert all(torch.equal(whole[file.name][name], t) for name, t in load_file(file).items())
    assert logs(run()[1]) == [SCORES, SUMS]


def test_entries_under_each_others_keys_are_ignored(run: Run, stages: Path) -> None:
    """Whole files, but of another question."""
    first, _ = run()
    one, two, three = sorted(stages.iterdir())
    contents = [file.read_bytes() for file in (one, two, three)]
    for file, content in zip((two, three, one), contents, strict=True):
        file.write_bytes(content)
    second, memory = run()
    assert len([line for line in logs(memory) if "damaged" in line]) == 3
    assert weights(second) == weights(first)


def test_a_full_disk_does_not_end_the_job(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be kept is only not kept."""

    def refuse(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(FolderStageCache, "put", refuse)
    result, memory = run()
    assert result.path.exists()
    assert any("could not be kept" in e.message for e in memory.events if isinstance(e, Logged))
