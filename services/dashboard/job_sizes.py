"""What the cut saved: layers, parameters, bytes, and speed where it was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.artifacts.manifest import Manifest
from services.dashboard.job_figures import FigureRow

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}
WEIGHTS = ".safetensors"
# What is measured of a model in memory, if the evaluation asks for it.
WEIGHT_BYTES = "weight_bytes"
ESTIMATED = "before: parameters times the width of the dtype"


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
    layers = _count(source.get("layer_count")), len(kept) if isinstance(kept, list) else None
    found = (
        BeforeAfter("layers", "count", *layers),
        BeforeAfter("parameters", "count", *parameters),
        _weights(manifest, parameters[0], rows),
        *(_measured(row) for row in rows if row.kind == "speed" and row.metric != WEIGHT_BYTES),
    )
    return tuple(one for one in found if one.before is not None or one.after is not None)


def _measured(row: FigureRow) -> BeforeAfter:
    unit = "bytes" if row.metric.endswith("_bytes") else "none"
    return BeforeAfter(
        row.metric.removesuffix("_bytes").replace("_", " "), unit, row.value("dense"), row.result
    )


def weight_bytes(manifest: Manifest) -> int:
    """The length of the files that hold the weights."""
    return sum(file.size_bytes for file in manifest.files if file.path.endswith(WEIGHTS))


def _weights(manifest: Manifest, parameters: float | None, rows: Sequence[FigureRow]) -> BeforeAfter:
    """Before: as measured, else as many bytes as the parameters take in the dtype of the result."""
    after = weight_bytes(manifest)
    known = next((row.value("dense") for row in rows if row.metric == WEIGHT_BYTES), None)
    width = DTYPE_BYTES.get(str(manifest.summary.get("dtype")))
    if known is not None or parameters is None or width is None:
        return BeforeAfter("weights", "bytes", known, after)
    return BeforeAfter("weights", "bytes", parameters * width, after, ESTIMATED)


def _part(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = summary.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
