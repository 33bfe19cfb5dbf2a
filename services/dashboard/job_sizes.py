"""What the cut saved: layers, parameters, bytes, and speed where it was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.artifacts.manifest import Manifest
from services.dashboard.job_figures import FigureRow

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}
WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class BeforeAfter:
    """A figure of the model as it was and as the artifact holds it. `unit` is count, bytes or none."""

    name: str
    unit: str
    before: float | None
    after: float | None
    note: str = ""

    @property
    def change(self) -> float | None:
        """What is left, as a share of what was."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before - 1


def sizes_of(manifest: Manifest, rows: Sequence[FigureRow]) -> tuple[BeforeAfter, ...]:
    """Rows for what the manifest of an artifact says, and the measured speeds among `rows`."""
    summary = manifest.summary
    source, plan = _part(summary, "source"), _part(summary, "plan")
    parameters = _count(source.get("parameters")), _count(summary.get("parameters"))
    kept = plan.get("kept")
    found = (
        BeforeAfter(
            "layers",
            "count",
            _count(source.get("layer_count")),
            len(kept) if isinstance(kept, list) else None,
        ),
        BeforeAfter("parameters", "count", *parameters),
        _weights(manifest, parameters[0]),
        *(
            BeforeAfter(row.metric, "none", row.value("dense"), row.result)
            for row in rows
            if row.kind == "speed"
        ),
    )
    return tuple(one for one in found if one.before is not None or one.after is not None)


def weight_bytes(manifest: Manifest) -> int:
    """The length of the files that hold the weights."""
    return sum(file.size_bytes for file in manifest.files if file.path.endswith(WEIGHTS))


def _weights(manifest: Manifest, parameters: float | None) -> BeforeAfter:
    width = DTYPE_BYTES.get(str(manifest.summary.get("dtype")))
    before = parameters * width if parameters is not None and width is not None else None
    return BeforeAfter(
        "weights", "bytes", before, weight_bytes(manifest), "before: parameters times the width of the dtype"
    )


def _part(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = summary.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
