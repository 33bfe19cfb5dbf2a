"""Exits with 0 if this container's server answers 200: `python answers.py NAME PATH`, NAME holds the port."""

# ruff: noqa: INP001 - scripts, not a package.

import http.client
import os
import sys

TIMEOUT_SECONDS = 15


def main(name: str, path: str) -> int:
    """The exit code."""
    # Not urllib, which would ask a proxy.
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ[name]), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return 0 if connection.getresponse().status == http.HTTPStatus.OK else 1
    except OSError:
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
