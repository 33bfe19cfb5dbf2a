"""What benchmarks that take hours share: finished figures on the disk, and tables between marks."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


class Took:
    """Time on the clock and of the processors."""

    def __init__(self, wall: float = 0.0, cpu: float = 0.0) -> None:
        self.wall, self.cpu = wall, cpu

    def shared(self, parts: int) -> "Took":
        """The part of each of several figures that were worked out together."""
        return Took(self.wall / parts, self.cpu / parts)


class Notebook:
    """Finished figures in a JSON file, with what each took; a figure is worked out once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]["value"]

    def get(self, key: str, otherwise: Any) -> Any:
        """The figure, or `otherwise`."""
        return self._entries.get(key, {"value": otherwise})["value"]

    def put(self, key: str, value: Any, took: Took) -> None:
        """The figure is on the disk."""
        self._entries[key] = {"value": value, "seconds": took.wall, "cpu_seconds": took.cpu}
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._entries, indent=1))
        beside.replace(self._path)

    def total(self) -> Took:
        """What all figures took."""
        entries = self._entries.values()
        return Took(sum(e["seconds"] for e in entries), sum(e["cpu_seconds"] for e in entries))


@contextmanager
def timed(what: str) -> Iterator[Took]:
    """Fills in what the body took, and says so."""
    took, started, cpu = Took(), time.monotonic(), time.process_time()
    yield took
    took.wall, took.cpu = time.monotonic() - started, time.process_time() - cpu
    print(f"{what}: {took.wall:.0f} s, {took.cpu:.0f} s of CPU", flush=True)


def put_between(report: Path, text: str, new: str) -> None:
    """`text` stands between the marks of `report`, all else stays; a missing report begins as `new`."""
    written = report.read_text() if report.exists() else new
    before, _, rest = written.partition(BEGIN)
    report.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
