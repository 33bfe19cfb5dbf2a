"""The command line, run within the test's process."""

from typer.testing import CliRunner

from ghosted_cli.service_commands import app


class Run:
    """Runs a command."""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it printed on stdout, once it ended with `code`."""
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.stdout

    def errors(self, *arguments: str, code: int) -> str:
        """What it printed on stderr, once it ended with `code`."""
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.stderr
