"""Exits with 0 if this container is connected to the server in a variable: `python connected.py NAME [FILE]`.

A process without a port cannot be asked whether it works. That it holds its connection is the next
best thing: it dials again whenever the connection breaks. Reads the kernel's table and connects to nobody.
FILE is a variable with the path of a file that must exist besides.
"""

# ruff: noqa: INP001 - scripts, not a package.

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

ESTABLISHED = "01"
DEFAULT_PORTS = {"postgresql": 5432, "redis": 6379}
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def server_port(url: str) -> int:
    """The port of the server at `url`."""
    parts = urlsplit(url)
    return parts.port or DEFAULT_PORTS[parts.scheme]


def connected_ports(table: str) -> Iterator[int]:
    """The remote port of each established connection in a table of the kernel's."""
    for line in table.splitlines()[1:]:
        _, _local, remote, state, *_ = line.split()
        if state == ESTABLISHED:
            yield int(remote.rpartition(":")[2], 16)


def main(name: str, *files: str) -> int:
    """The exit code."""
    if not all(Path(os.environ[file]).exists() for file in files):
        return 1
    wanted = server_port(os.environ[name])
    tables = (path.read_text() for path in TABLES if path.exists())
    return 0 if any(wanted in connected_ports(table) for table in tables) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
