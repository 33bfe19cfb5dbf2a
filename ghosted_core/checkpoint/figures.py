"""The metrics of a manifest as rows: one metric, its variants side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ghosted_core.checkpoint.manifest import Manifest

VARIANTS = ("dense", "pruned", "repaired", "finetuned")


@dataclass(frozen=True)
class Row:
    """A metric of all variants that have it; `details` say on what and how exactly, by variant."""

    metric: str
    values: Mapping[str, float | None]
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """On what text it was measured; None if not on a text."""
        return next((str(one["dataset"]) for one in self.details.values() if "dataset" in one), None)

    @property
    def task(self) -> str | None:
        """Which benchmark task it is of; None if of none."""
        return next((str(one["task"]) for one in self.details.values() if "task" in one), None)

    @property
    def machine(self) -> str | None:
        """On which device it was timed or weighed; None if it is no matter of the machine."""
        return next((str(one["device"]) for one in self.details.values() if "device" in one), None)

    def error(self, variant: str) -> float | None:
        """The standard error of the value. That of a perplexity e^nll is e^nll times that of the nll."""
        detail = self.details.get(variant, {})
        value, of_nll = self.values.get(variant), detail.get("standard_error_nll")
        if value is not None and of_nll is not None:
            return value * float(of_nll)
        found = detail.get("standard_error")
        return None if found is None else float(found)


def rows(manifest: Manifest) -> tuple[Row, ...]:
    """What was measured, in the order in which it was; figures that only follow from others are left out."""
    found: dict[str, dict[str, float | None]] = {}
    for name, value in manifest.metrics.items():
        metric, _, variant = name.rpartition("_")
        if variant in VARIANTS and (name in manifest.details or not manifest.details):
            found.setdefault(metric, {})[variant] = value
    return tuple(Row(metric, values, _details(manifest, metric, values)) for metric, values in found.items())


def _details(manifest: Manifest, metric: str, variants: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    return {variant: manifest.details.get(f"{metric}_{variant}", {}) for variant in variants}


def shown_variants(manifest: Manifest) -> tuple[str, ...]:
    """The variants that tables of this checkpoint have columns for."""
    return VARIANTS if manifest.finetune is not None else VARIANTS[:-1]


def artifact_variant(manifest: Manifest) -> str:
    """Which of the variants the checkpoint is."""
    if manifest.finetune is not None:
        return "finetuned"
    return "repaired" if manifest.fits else "pruned"
