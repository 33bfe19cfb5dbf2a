"""Prints what the distribution needs with some of its extras: `python docker/requirements.py EXTRA...`.

For images, where the dependencies are installed before the code is there.
"""

# ruff: noqa: INP001 - scripts, not a package.

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
# An extra that stands for extras of the same distribution: name[one,two].
OWN_EXTRAS = re.compile(r"(?P<name>[\w.-]+)\[(?P<extras>[\w., -]+)\]$")


def requirements(project: Mapping[str, Any], extras: Sequence[str]) -> tuple[str, ...]:
    """The dependencies of `project` and of its `extras`, each once.

    Raises:
        KeyError: there is no such extra.
    """
    optional = {name: tuple(extra) for name, extra in project["optional-dependencies"].items()}

    def expand(wanted: Sequence[str]) -> Iterator[str]:
        for requirement in wanted:
            own = OWN_EXTRAS.match(requirement)
            if own is not None and own["name"] == project["name"]:
                for extra in own["extras"].split(","):
                    yield from expand(optional[extra.strip()])
            else:
                yield requirement

    named = (requirement for extra in extras for requirement in expand(optional[extra]))
    return tuple(dict.fromkeys((*project["dependencies"], *named)))


def main(extras: Sequence[str]) -> None:
    """Print them, one a line."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    sys.stdout.write("".join(f"{line}\n" for line in requirements(project, extras)))


if __name__ == "__main__":
    main(sys.argv[1:])
