"""The folder that a command leaves: one that may be written before the work, one whole at its end."""

import errno
import tempfile
from pathlib import Path

from ghosted_core.errors import OutputExistsError, OutputUnusableError

OCCUPIED = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


def require_free(destination: Path) -> None:
    """Make sure that a folder may be put at `destination`: hours of work must not end in a refusal.

    Raises:
        OutputExistsError: something is there already.
        OutputUnusableError: nothing can be written there.
    """
    try:
        if destination.is_symlink() or (destination.exists() and not _is_empty_folder(destination)):
            raise OutputExistsError(f"'{destination}' exists and is not an empty folder.")
        if destination.resolve() == Path.cwd():
            # Whoever stands in it would be left in a folder that is gone.
            raise OutputExistsError(f"'{destination}' is the current folder, which cannot be replaced.")
        _try_to_write(destination)
    except OSError as error:
        raise unusable(destination, error) from error


def put(folder: Path, destination: Path) -> None:
    """`folder` has the name `destination`, in one step; an empty folder may be there.

    Raises:
        OutputExistsError: something came to be there meanwhile.
        OutputUnusableError: the name cannot be given.
    """
    try:
        folder.replace(destination)
    except OSError as error:
        if error.errno in OCCUPIED:
            raise OutputExistsError(f"'{destination}' was written by another process meanwhile.") from error
        raise unusable(destination, error) from error


def unusable(destination: Path, error: OSError) -> OutputUnusableError:
    """What the operating system says of `destination`, as our error."""
    return OutputUnusableError(f"'{destination}' cannot be written: {error.strerror}.")


def temporary_sibling(destination: Path) -> Path:
    """A fresh private folder beside `destination`, whose parent exists."""
    return Path(tempfile.mkdtemp(dir=destination.parent, prefix=f".{destination.name}.partial-"))


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _try_to_write(destination: Path) -> None:
    # Permissions, read-only disks and names that are too long: only the system itself knows them all.
    existing = next(parent for parent in destination.absolute().parents if parent.exists())
    temporary_sibling(existing / destination.name).rmdir()
