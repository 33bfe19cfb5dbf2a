"""A finished job as a table or as JSON."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ghosted_core.recorder import Event, StageFinished

if TYPE_CHECKING:
    # All bring torch, which takes seconds to import.
    from ghosted_core.checkpoint.figures import Row
    from ghosted_core.checkpoint.manifest import Manifest
    from ghosted_core.pipeline import JobResult

WEIGHTS_SUFFIX = ".safetensors"
TASKS_MISSING = "Benchmark tasks were asked for, but not all ran: the harness crashed."
# Of larger figures, digits behind the point say nothing.
WHOLE_FROM = 1_000


def stages(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Seconds and peak memory of each stage."""
    return [asdict(event) for event in events if isinstance(event, StageFinished)]


def result_document(result: "JobResult", events: Sequence[Event]) -> dict[str, Any]:
    """What `--json` prints: the manifest, where the checkpoint is, and what the run took."""
    return {
        "path": str(result.path),
        "manifest": result.manifest.model_dump(mode="json"),
        "stages": stages(events),
    }


def result_table(result: "JobResult", events: Sequence[Event]) -> None:
    """Print what was done, what it cost and where it is."""
    console = Console(highlight=False)
    console.print(comparison(result.manifest))
    console.print(fit_lines(result.manifest), markup=False, soft_wrap=True)
    console.print(stage_table(stages(events)))
    console.print(f"Checkpoint: {result.path}", markup=False, soft_wrap=True)


def comparison(manifest: "Manifest") -> Table:
    """Dense, pruned and repaired side by side: perplexities, tasks and speed; the report has all figures."""
    from ghosted_core.checkpoint.figures import rows, shown_variants

    variants = shown_variants(manifest)
    table = Table(
        title=f"{_name(manifest)}: layers {ranges(manifest.plan.removed)} removed",
        caption=None if manifest.tasks_complete else TASKS_MISSING,
    )
    # In a narrow terminal a name goes on below, instead of being cut off.
    table.add_column("", overflow="fold")
    for variant in variants:
        table.add_column(variant, justify="right")
    table.add_row("layers", *_layers(manifest))
    for row in rows(manifest):
        if row.metric.startswith("perplexity") or row.task or row.machine:
            table.add_row(row.metric, *(_figure(row, variant) for variant in variants))
    table.add_row("parameters", f"{manifest.source.parameters:,}", "", f"{manifest.parameters:,}")
    table.add_row(f"bytes on disk ({manifest.dtype})", *_bytes(manifest))
    return table


def fit_lines(manifest: "Manifest") -> str:
    """One line a boundary on the fit, and the share of the damage that is left."""
    lines = [_fit_line(fit) for fit in manifest.fits]
    ratio = manifest.metrics.get("damage_ratio")
    if ratio is not None:
        lines.append(f"Damage left, ln(ppl repaired / dense) over ln(ppl pruned / dense): {ratio:.2f}")
    trained = manifest.metrics.get("damage_ratio_finetuned")
    if trained is not None:
        lines.append(f"The same after training: {trained:.2f}")
    if manifest.finetune is not None:
        lines.append(_training_line(manifest.finetune))
    return "\n".join(lines)


def _training_line(found: dict[str, Any]) -> str:
    return (
        f"Training of {found['trainable']}: {found['steps']} steps in {found['seconds']:.0f} s, "
        f"KL on held-out text {found['held_out_kl_before']:.4f} before, {found['held_out_kl']:.4f} after"
    )


def _fit_line(fit: dict[str, Any]) -> str:
    """What this repair's report has; figures that it has not are left out."""
    residual = f"residual {fit['relative_residual']:.3f} on {fit['tokens']:,} calibration tokens"
    if fit["held_out_relative_residual"] is not None:
        residual += f", {fit['held_out_relative_residual']:.3f} on {fit['held_out_tokens']:,} held-out ones"
    parts = [f"Boundary [{fit['boundary']['start']}, {fit['boundary']['stop']}): {residual}", fit["method"]]
    if fit["condition"] is not None:
        parts[-1] = f"condition {fit['condition']:.1e} ({fit['method']})"
    if fit["ridge"]:
        parts.append(f"ridge {fit['ridge']:.1e}")
    if fit["antisymmetric_share"] is not None:
        parts.append(f"anti-symmetric share {fit['antisymmetric_share']:.2f}")
    for name in ("factor", "rotation"):
        if name in fit["detail"]:
            value = fit["detail"][name]
            parts.append(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}")
    return "; ".join(parts)


def stage_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Seconds and peak memory of each stage; one that ran in parts, as the evaluation does, has one row."""
    table = Table()
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    table.add_column("peak memory", justify="right")
    for stage in dict.fromkeys(row["stage"] for row in rows):
        parts = [row for row in rows if row["stage"] == stage]
        memory = max((row["peak_memory_bytes"] or 0 for row in parts), default=0)
        seconds = sum(row["seconds"] for row in parts)
        table.add_row(stage, f"{seconds:.1f}", f"{memory / 1e9:.2f} GB" if memory else "")
    return table


def _name(manifest: "Manifest") -> str:
    reference = manifest.source.reference
    return str(reference.get("id") or reference.get("alias") or reference.get("path"))


def ranges(layers: Iterable[int]) -> str:
    """Layers as text: 3, 5-7."""
    indices = sorted(layers)
    # Within a run of neighbours, index minus rank is constant.
    runs = [
        [index for _, index in group]
        for _, group in itertools.groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _layers(manifest: "Manifest") -> tuple[str, str, str]:
    kept = str(len(manifest.plan.kept))
    count = len(manifest.operators)
    return str(manifest.source.layer_count), kept, f"{kept} + {count} operator{'s' * (count != 1)}"


def _bytes(manifest: "Manifest") -> tuple[str, str, str]:
    written = sum(e.size_bytes for name, e in manifest.files.items() if name.endswith(WEIGHTS_SUFFIX))
    dense = manifest.source.parameters * written / manifest.parameters
    return f"{dense / 1e6:,.1f} MB", "", f"{written / 1e6:,.1f} MB"


def _figure(row: "Row", variant: str) -> str:
    """The value with its standard error, as far as there are any."""
    value, error = row.values.get(variant), row.error(variant)
    if value is None:
        return "-"
    text = f"{value:,.0f}" if abs(value) >= WHOLE_FROM else f"{value:.4g}"
    return text if error is None else f"{text} +- {error:.2g}"
