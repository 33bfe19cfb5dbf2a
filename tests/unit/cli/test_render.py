from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ghosted_cli.render import comparison, fit_lines, stage_table
from ghosted_core.checkpoint.manifest import Manifest
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from tests.jobs import tiny_spec


@pytest.fixture(scope="module")
def manifest(tiny_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """That of a job as it is by default."""
    folder = tmp_path_factory.mktemp("rendered")
    spec = tiny_spec(tiny_folder, text_file)
    return compress(spec, RunOptions(out=folder / "out", cache=folder / "cache"), NullRecorder()).manifest


def figures(manifest: Manifest, found: dict[str, tuple[float | None, dict[str, Any]]]) -> Manifest:
    """The same, with these figures and no others."""
    metrics = {name: value for name, (value, _) in found.items()}
    details = {name: detail for name, (_, detail) in found.items()}
    return manifest.model_copy(update={"metrics": metrics, "details": details})


def shown(manifest: Manifest, width: int = 200) -> dict[str, list[str]]:
    """The cells of each line of the table, by its first one."""
    console = Console(width=width)
    with console.capture() as caught:
        console.print(comparison(manifest))
    lines = [line.strip("│").split("│") for line in caught.get().splitlines() if line.startswith("│")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines}


def test_by_default_there_is_one_figure_with_its_error(manifest: Manifest) -> None:
    """Perplexity between layers and parameters; what else was measured is left to the report."""
    rows = shown(manifest)
    assert list(rows) == ["layers", "perplexity", "parameters", "bytes on disk (float32)"]
    nll, error = (manifest.metrics[f"{name}_dense"] for name in ("perplexity", "nll_standard_error"))
    assert nll is not None
    assert error is not None
    assert rows["perplexity"][0] == f"{nll:.4g} +- {nll * error:.2g}"


def test_every_figure_that_was_asked_for_has_a_row(manifest: Manifest) -> None:
    """Corpora, tasks and speed; a value that is no number is a dash, and so is one that is missing."""
    corpus, task, machine = {"dataset": "ptb"}, {"task": "boolq", "standard_error": 0.0087}, {"device": "cpu"}
    found = figures(
        manifest,
        {
            "perplexity_ptb_dense": (12345.6, {**corpus, "standard_error_nll": 0.01}),
            "perplexity_ptb_pruned": (None, corpus),
            "kl_pruned": (0.1, {**corpus, "standard_error": 0.01}),
            "acc_boolq_dense": (0.6123, task),
            "decode_tokens_per_second_repaired": (11.8, machine),
        },
    )
    rows = shown(found)
    assert rows["perplexity_ptb"] == ["12,346 +- 1.2e+02", "-", "-"]
    assert rows["acc_boolq"] == ["0.6123 +- 0.0087", "-", "-"]
    assert rows["decode_tokens_per_second"] == ["-", "-", "11.8"]
    assert not {"kl", "perplexity"} & rows.keys()


def test_a_name_is_whole_in_a_narrow_terminal(manifest: Manifest) -> None:
    """It goes on in the next line, for two tasks may begin alike."""
    name = "acc_norm_arc_challenge"
    found = figures(manifest, {f"{name}_dense": (0.6123, {"task": name, "standard_error": 0.0087})})
    assert name in "".join(shown(found, width=60))


def test_tasks_that_crashed_are_told_of_below_the_table(manifest: Manifest) -> None:
    """Where all ran, or none was asked for, nothing is said."""
    crashed = manifest.model_copy(update={"tasks_complete": False})
    assert "not all ran" in str(comparison(crashed).caption)
    assert comparison(manifest).caption is None


def test_what_training_left_of_the_damage_is_told(manifest: Manifest) -> None:
    """After what the repair left; without training there is no such line."""
    trained = manifest.model_copy(update={"metrics": {"damage_ratio": 0.5, "damage_ratio_finetuned": 0.25}})
    assert fit_lines(trained).endswith("0.50\nThe same after training: 0.25")
    assert "after training" not in fit_lines(manifest)


def test_a_stage_that_ran_in_parts_is_one_row() -> None:
    """With the time of all of them and the memory of the largest."""
    parts = (("load", 2.0, None), ("evaluate", 9.5, 3_000_000_000), ("evaluate", 3.0, 2_000_000_000))
    table = stage_table([{"stage": s, "seconds": t, "peak_memory_bytes": m} for s, t, m in parts])
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["load", "evaluate"], ["2.0", "12.5"], ["", "3.00 GB"]]
