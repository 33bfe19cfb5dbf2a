"""What a machine or a number format cannot hold is said as such."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

from ghosted_cli.exits import REFUSED
from ghosted_cli.main import app
from ghosted_core.device import is_out_of_memory, memory_faults_named
from ghosted_core.errors import DataError, InvalidSpecError, OutOfMemoryError
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.spec import JobSpec
from ghosted_core.testing import tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

PETABYTE = 1 << 50


def run(spec: JobSpec, out: Path) -> Any:
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder())


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "gemma3"])
def test_gemma_in_half_precision_is_refused_before_any_work(
    model_type: str, text_file: Path, tmp_path: Path
) -> None:
    """Its stream leaves float16's range; asked for, or by what the model says of itself."""
    source = save_tiny_model(tiny_model(model_type), tmp_path / "source")
    with pytest.raises(InvalidSpecError, match="overflows in float16") as caught:
        run(tiny_spec(source, text_file, remove=[1], dtype="float16"), tmp_path / "out")
    assert "bfloat16" in caught.value.hint
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    with pytest.raises(InvalidSpecError, match="overflows"):
        run(tiny_spec(source, text_file, remove=[1]), tmp_path / "out")
    run(tiny_spec(source, text_file, remove=[1], dtype="bfloat16", evaluation=None), tmp_path / "out")


def test_want_of_memory_is_an_error_of_ours_with_what_to_turn() -> None:
    """The machine's allocator has no type of error of its own; other faults stay what they are."""
    with pytest.raises(OutOfMemoryError, match="'cpu'") as caught, memory_faults_named("cpu"):
        torch.empty(PETABYTE, dtype=torch.int8)
    assert "windows" in caught.value.hint
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError, match="other"), memory_faults_named("cpu"):
        raise RuntimeError("other")


def test_the_command_line_says_so(
    tiny_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback: a code, a message, and exit code 10; nothing is left behind."""

    def hungry(*_: Any) -> None:
        torch.empty(PETABYTE, dtype=torch.int8)

    monkeypatch.setattr("ghosted_core.pipeline.score_layers", hungry)
    arguments = [
        "compress",
        str(tiny_folder),
        "--layers",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--calibration",
        str(text_file),
        "--sequences",
        "4",
        "--sequence-length",
        "64",
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == REFUSED
    assert json.loads(result.stdout)["error"]["code"] == "out_of_memory"
    assert not any(tmp_path.iterdir())


def test_long_documents_are_cut_into_windows(tiny_folder: Path, text_file: Path, tmp_path: Path) -> None:
    """Whatever the text, no more than `sequence_length` tokens enter the model at once."""
    texts = text_file.read_text().split("\n\n")
    documents = [" ".join(texts[start : start + 20]) for start in range(0, len(texts), 20)]
    assert min(map(len, documents)) > 40 * 64
    long = tmp_path / "long.txt"
    long.write_text("\n\n".join(documents))
    spec = tiny_spec(tiny_folder, long, remove=[1], evaluation=None)
    seen: list[int] = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: seen.append(args[0].shape[1]) if type(module) is torch.nn.Embedding else None
    )
    try:
        run(spec, tmp_path / "out")
    finally:
        hook.remove()
    assert max(seen) == 64


@pytest.mark.parametrize("dataset", [{"kind": "hub", "id": "a/b"}, "../corpus.py", {"kind": "local"}])
def test_a_text_is_a_named_set_or_a_file(dataset: Any) -> None:
    """Nothing that a script would have to fetch can be asked for."""
    with pytest.raises(ValidationError):
        JobSpec.model_validate(
            {"model": "a/b", "layers": 1, "calibration": {"dataset": dataset}},
        )


def test_a_script_is_no_text(tiny_folder: Path, tmp_path: Path) -> None:
    """A file that makes a data set is refused unread."""
    script = tmp_path / "corpus.py"
    script.write_text("raise SystemExit('run')")
    with pytest.raises(DataError, match="not a kind of file"):
        run(tiny_spec(tiny_folder, script, remove=[1]), tmp_path / "out")
