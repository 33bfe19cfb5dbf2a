"""Exit codes, and how an error reaches the user's terminal."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console

from ghosted_core.errors import GhostedError, InvalidSpecError

OK = 0
BUG = 1
USAGE = 2
REFUSED = 10
TRY_AGAIN = 20
INTERRUPTED = 130
NOTHING_LEFT = "Interrupted; nothing was left behind."


@contextmanager
def exit_codes(*, as_json: bool, interrupted: str = NOTHING_LEFT) -> Iterator[None]:
    """Run a command's body: what goes wrong becomes a message on stderr and an exit code.

    10: the request, model, data or disk stands in the way; the message says what to change.
    20: the same command may work later. 130: interrupted, by Ctrl-C, SIGTERM or a closed terminal.
    Anything else is a fault of ours and keeps its traceback.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    # A terminal that is closed is an end like any other; under nohup the signal stays ignored.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        yield
    except ValidationError as error:
        _fail(invalid_spec(error), as_json=as_json)
    except GhostedError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        Console(stderr=True).print(interrupted)
        raise typer.Exit(INTERRUPTED) from None


def invalid_spec(error: ValidationError) -> InvalidSpecError:
    """The first complaint of a validation, as one of our errors."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return InvalidSpecError(f"{where}: {message}" if where else message)


def _fail(error: GhostedError, *, as_json: bool) -> NoReturn:
    if as_json:
        problem = {"code": error.code, "message": error.message, "advice": error.hint}
        if error.output:
            problem["output"] = error.output
        typer.echo(json.dumps({"error": problem}))
    else:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"Error ({error.code}): {error.message}", style="bold red")
        if error.output:
            console.print(error.output)
        console.print(error.hint)
    raise typer.Exit(TRY_AGAIN if error.retryable else REFUSED) from error


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # The same way out as Ctrl-C, so that temporary folders are removed.
    raise KeyboardInterrupt
