"""The `ghosted` command."""

import typer

from ghosted_cli.compare import compare
from ghosted_cli.compress import compress
from ghosted_cli.demo import demo
from ghosted_cli.evaluate import evaluate
from ghosted_cli.inspect import inspect, verify
from ghosted_cli.keys import app as keys
from ghosted_cli.plan import plan
from ghosted_cli.service_commands import app as service
from ghosted_cli.up import up

app = typer.Typer(
    name="ghosted",
    help="Training-free layer pruning for decoder LLMs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(compress)
app.command()(plan)
app.command()(inspect)
app.command()(compare)
app.command()(evaluate)
app.command()(verify)
app.command()(up)
for command in service.registered_commands:
    app.registered_commands.append(command)
app.add_typer(keys, name="keys")
app.command()(demo)


def main() -> None:
    """Entry point of the console script."""
    app()
