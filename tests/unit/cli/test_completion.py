"""What the shell is offered."""

import pytest
from typer.testing import CliRunner

from ghosted_cli.main import app


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_had(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    """The script for the shell is printed; it asks the command itself."""
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = CliRunner().invoke(app, ["--show-completion", shell], prog_name="ghosted")
    assert result.exit_code == 0
    assert "_GHOSTED_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ghosted re", {"retry"}),
        ("ghosted jobs --state c", {"cancelled"}),
        ("ghosted submit --dry", {"--dry-run"}),
    ],
)
def test_commands_options_and_choices_are_offered(words: str, offered: set[str]) -> None:
    """What the shell asks for is answered with what can stand there."""
    last = str(len(words.split()) - 1)
    asked = {"_GHOSTED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
    result = CliRunner().invoke(app, [], env=asked, prog_name="ghosted")
    assert set(result.stdout.split()) == offered
