from io import StringIO

import pytest
import typer
from rich.console import Console

from ghosted_cli import exits
from ghosted_cli.progress import PlainRecorder
from ghosted_core.errors import HarnessError
from ghosted_core.recorder import Logged


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_shows_what_a_program_printed(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001
    """Whoever runs a command runs the machine."""
    with pytest.raises(typer.Exit):
        exits._fail(HarnessError("ended", output="last words"), as_json=as_json)
    assert "last words" in "".join(capsys.readouterr())


def test_so_does_a_warning() -> None:
    """Below its own sentence."""
    shown = StringIO()
    PlainRecorder(Console(file=shown)).record(Logged("ended", "warning", "last words"))
    assert shown.getvalue() == "ended\nlast words\n"
