"""Local files that hold the items of harness tasks, found by their names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ghosted_core.errors import TaskDataError
from ghosted_core.wheels import file_sha256

# The names that data sets of the harness give to their splits.
SPLIT = r"(?P<split>train|validation|dev|test)"
KINDS = {"jsonl": "json", "jsonl.gz": "json", "parquet": "parquet"}
# The number of a file that is no part.
WHOLE = -1
ENDING = re.compile(rf"_{SPLIT}(?:\.part(?P<part>\d+))?\.(?P<kind>jsonl|jsonl\.gz|parquet)")


@dataclass(frozen=True)
class LocalFiles:
    """Files by split, those of a split in order; `kind` is the loader of `datasets` for them."""

    kind: str
    splits: tuple[tuple[str, tuple[Path, ...]], ...]
    fingerprints: Mapping[str, str]


def local_files(folder: Path, task: str, dataset: str, configuration: str | None) -> LocalFiles:
    """The files of a task: NAME_SPLIT.jsonl, NAME_SPLIT.part1.jsonl ..., also .jsonl.gz and .parquet.

    NAME is the task's, or that of the data set in the harness. Of a data set with configurations it names
    this one, after _ or alone: a file of the whole would serve the tasks of all of them. Case does not
    matter. Rows have the fields of the data set that the harness loads.

    Raises:
        TaskDataError: there are none, they are of several kinds, or two may hold the same items.
    """
    names = _names(task, dataset, configuration)
    for name in names:
        found = _files(folder, name)
        if found:
            return _sorted(name, found)
    raise TaskDataError(
        f"There are no items of task '{task}' in the folder of task data.",
        advice=f"Put a file such as {names[0]}_test.jsonl or {names[0]}_validation.jsonl there.",
    )


def _names(task: str, dataset: str, configuration: str | None) -> list[str]:
    short = dataset.rpartition("/")[2]
    of_data = (
        [f"{task}_{configuration}", configuration, f"{short}_{configuration}"] if configuration else [short]
    )
    return list(dict.fromkeys(name.lower() for name in [task, *of_data]))


def _files(folder: Path, name: str) -> list[tuple[re.Match[str], Path]]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        lower = path.name.lower()
        match = ENDING.fullmatch(lower.removeprefix(name)) if lower.startswith(name) else None
        if match is not None and path.is_file():
            found.append((match, path))
    return found


def _sorted(name: str, found: list[tuple[re.Match[str], Path]]) -> LocalFiles:
    kinds = {KINDS[match["kind"]] for match, _ in found}
    if len(kinds) > 1:
        raise TaskDataError(f"The files of '{name}' in the folder of task data are of several kinds.")
    splits: dict[str, list[tuple[int, Path]]] = {}
    for match, path in found:
        splits.setdefault(match["split"], []).append((int(match["part"] or WHOLE), path))
    for parts in splits.values():
        _check_parts(parts)
    return LocalFiles(
        kind=kinds.pop(),
        splits=tuple((split, tuple(path for _, path in sorted(parts))) for split, parts in splits.items()),
        fingerprints={path.name: file_sha256(path) for _, path in found},
    )


def _check_parts(parts: list[tuple[int, Path]]) -> None:
    """Return if no item is read twice: a split is one whole file, or parts with a number each."""
    numbers = {number for number, _ in parts}
    if len(numbers) < len(parts) or (WHOLE in numbers and len(parts) > 1):
        names = ", ".join(path.name for _, path in parts)
        raise TaskDataError(
            f"The files {names} in the folder of task data would count items twice.",
            advice="Keep one file of the whole split, or one of each of its parts, and move the others away.",
        )
