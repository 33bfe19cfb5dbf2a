"""`ghosted keys`: the API keys of a service, for whoever runs it. Works on the database, not the API."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ghosted_cli.connection import Json
from ghosted_cli.exits import exit_codes
from ghosted_cli.up import data_folder
from ghosted_core.errors import InvalidSpecError

if TYPE_CHECKING:
    from services.db.models import ApiKey
    from services.db.sessions import Database

URL_VARIABLE = "GHOSTED_DATABASE_URL"

Data = Annotated[
    Path | None,
    typer.Option(help=f"Data folder of a running 'ghosted up', used where ${URL_VARIABLE} is not set."),
]
Prefix = Annotated[str, typer.Argument(help="The middle part of the key, as 'ghosted keys list' shows it.")]

app = typer.Typer(help="API keys of a service of your own.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is, for the list.")],
    *,
    scope: Annotated[
        list[str] | None, typer.Option(help="read, submit or admin; may be repeated (else read and submit).")
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="Days until it ends by itself (else never).")
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, which happens this once: only its hash is kept."""
    with exit_codes(as_json=as_json), _database(data) as database:
        from services.auth import repository
        from services.auth.keys import prefix_of
        from services.auth.scopes import USUAL_SCOPES

        lasts = None if days is None else timedelta(days=days)
        with database.write() as session:
            try:
                plain = repository.create_key(session, name, scopes=scope or USUAL_SCOPES, lasts=lasts)
            except ValueError as error:
                raise InvalidSpecError(f"there is no such scope: {error}") from error
            row = repository.get_key(session, prefix_of(plain) or "")
            shown = {} if row is None else _shown(row)
        typer.echo(json.dumps({"key": plain, **shown}) if as_json else plain)


@app.command("list")
def list_keys(*, data: Data = None, as_json: Json = False) -> None:
    """List all keys, also those that are revoked or past their time."""
    with exit_codes(as_json=as_json), _database(data) as database:
        from services.auth import repository

        with database.read() as session:
            shown = [_shown(row) for row in repository.list_keys(session)]
        if as_json:
            typer.echo(json.dumps({"items": shown}))
            return
        table = Table(box=None)
        for title in ("prefix", "name", "scopes", "created (UTC)", "expires", "last used", "revoked"):
            table.add_column(title, no_wrap=title == "prefix")
        for key in shown:
            times = (key[name] for name in ("created_at", "expires_at", "last_used_at", "revoked_at"))
            table.add_row(key["prefix"], key["name"], " ".join(key["scopes"]), *map(_minute, times))
        Console(highlight=False, markup=False).print(table)


@app.command()
def revoke(prefix: Prefix, *, data: Data = None, as_json: Json = False) -> None:
    """From now on the key opens nothing; its jobs stay."""
    with exit_codes(as_json=as_json), _database(data) as database:
        from services.auth import repository

        with database.write() as session:
            repository.revoke_key(session, prefix)
            row = repository.get_key(session, prefix)
            if row is None:
                raise InvalidSpecError(
                    f"there is no key of the prefix '{prefix}'", advice="See 'ghosted keys list'."
                )
            shown = _shown(row)
        typer.echo(json.dumps(shown) if as_json else f"{prefix} is revoked.")


@contextmanager
def _database(data: Path | None) -> "Iterator[Database]":
    from sqlalchemy.exc import SQLAlchemyError

    from services.db.sessions import open_database
    from services.errors import DatabaseUnavailableError

    database = open_database(_url(data))
    try:
        yield database
    except SQLAlchemyError as error:
        # Not the whole text: some of these errors quote the address with its password.
        raise DatabaseUnavailableError(
            f"the database does not answer or refuses ({type(error).__name__})",
            advice="Does it run, and has it this version's schema (python -m services.db.migrate)?",
        ) from error
    finally:
        database.close()


def _url(data: Path | None) -> str:
    """Where the database is.

    Raises:
        InvalidSpecError: neither the environment nor a data folder says so.
    """
    from ghosted_cli.installation import URL_FILE
    from services.config import DatabaseSettings

    if data is None and os.environ.get(URL_VARIABLE):
        return DatabaseSettings().database_url.get_secret_value()
    file = data_folder(data) / URL_FILE
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSpecError(
            f"no database is known: {URL_VARIABLE} is not set, and no 'ghosted up' runs on {file.parent}",
            advice=f"Set {URL_VARIABLE}, or name the data folder of a running 'ghosted up' with --data.",
        ) from error


def _shown(row: "ApiKey") -> dict[str, Any]:
    times = {name: getattr(row, name) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")}
    return {
        "prefix": row.prefix,
        "name": row.name,
        "scopes": list(row.scopes),
        **{name: _stamp(time) for name, time in times.items()},
    }


def _stamp(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def _minute(stamp: str | None) -> str:
    return "-" if stamp is None else stamp[:16].replace("T", " ")
