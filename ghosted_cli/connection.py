"""Which service a command talks to, and with which key: flags over environment over profile."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ghosted_cli.exits import NOTHING_LEFT, exit_codes
from ghosted_cli.profiles import find_profile, open_to_others, profile_file, profile_names
from ghosted_client import Client
from ghosted_client.errors import NotAuthenticatedError, Problem

URL_VARIABLE = "GHOSTED_URL"
KEY_VARIABLE = "GHOSTED_API_KEY"
PROFILE_VARIABLE = "GHOSTED_PROFILE"
DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[
    str | None,
    typer.Option(help=f"Address of the service (else ${URL_VARIABLE}, the profile's, {DEFAULT_URL})."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File that holds the API key (else ${KEY_VARIABLE}, the profile's); never an argument, "
        "which others see."
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help=f"Which service of the profile file (else ${PROFILE_VARIABLE}, 'default').",
        autocompletion=profile_names,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, progress on stderr.")]


@dataclass(frozen=True)
class ServiceOptions:
    """Which service a command talks to, with which key, and in which form it answers."""

    url: Url = None
    key_file: KeyFile = None
    profile: ProfileName = None
    as_json: Json = False

    @contextmanager
    def connected(self, interrupted: str = NOTHING_LEFT) -> Iterator[Client]:
        """A client for a command's body; what goes wrong there ends the command as `exit_codes` says."""
        with (
            exit_codes(as_json=self.as_json, interrupted=interrupted),
            connect(self.url, self.key_file, self.profile) as client,
        ):
            yield client


@dataclass(frozen=True)
class Connection:
    """A service, a key, and files with keys that others can read."""

    url: str
    key: str | None = field(repr=False)
    exposed: tuple[Path, ...] = ()


def connect(url: str | None, key_file: Path | None, profile: str | None) -> Client:
    """A client of the service that flags, environment and profile name.

    Raises:
        ProfileError: there is no such profile.
        NotAuthenticatedError: a file with a key cannot be read.
    """
    found = choose(url, key_file, profile, os.environ, profile_file())
    for file in found.exposed:
        typer.echo(f"Warning: others can read {file}, which holds a key. Run: chmod 600 {file}", err=True)
    return Client(found.url, found.key)


def choose(
    url: str | None, key_file: Path | None, profile: str | None, environment: Mapping[str, str], file: Path
) -> Connection:
    """What counts of flags, environment and profile file, in this order, for address and key each.

    A profile's key goes to the profile's address and to no other.

    Raises:
        ProfileError: there is no such profile.
        NotAuthenticatedError: a file with a key cannot be read.
    """
    named = find_profile(file, profile or environment.get(PROFILE_VARIABLE) or None)
    address = url or environment.get(URL_VARIABLE) or (named.url if named else DEFAULT_URL)
    if key_file is not None:
        return Connection(address, _read_key(key_file), _exposed(key_file))
    if key := environment.get(KEY_VARIABLE):
        return Connection(address, key)
    if named is None or address.rstrip("/") != named.url.rstrip("/"):
        return Connection(address, None)
    if named.key_file is not None:
        return Connection(address, _read_key(named.key_file), _exposed(named.key_file))
    return Connection(address, named.key, _exposed(file) if named.key else ())


def _exposed(file: Path) -> tuple[Path, ...]:
    expanded = file.expanduser()
    return (expanded,) if open_to_others(expanded) else ()


def _read_key(file: Path) -> str:
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        told = f"the key file {file} cannot be read: {type(error).__name__}"
        advice = "Name a file that holds the key and nothing else."
        raise NotAuthenticatedError(Problem(401, "unauthenticated", "No key", told, advice)) from error
