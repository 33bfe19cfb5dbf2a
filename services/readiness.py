"""Showing that a process without a port is at work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def show(file: Path) -> None:
    """`file` exists."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def hide(file: Path) -> None:
    """`file` does not exist."""
    file.unlink(missing_ok=True)


@contextmanager
def shown(file: Path | None) -> Iterator[None]:
    """While the body runs `file` exists, if there is to be one."""
    if file is None:
        yield
        return
    show(file)
    try:
        yield
    finally:
        hide(file)
