"""`ghosted plan`: what a job would remove and why, and what it needs, without writing anything."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ghosted_cli.compress import Cache, Device, Json, Model, Revision
from ghosted_cli.exits import exit_codes
from ghosted_cli.job_options import JobOptions
from ghosted_cli.options import spread
from ghosted_cli.render import ranges
from ghosted_cli.request import cache_folder, job_spec, model_reference
from ghosted_cli.scores import score_lines
from ghosted_cli.working import working

if TYPE_CHECKING:
    from ghosted_core.criteria import LayerScores
    from ghosted_core.estimate import Estimate
    from ghosted_core.preview import Preview
    from ghosted_core.room import Room

MEGA = 1e6


@spread
def plan(
    model: Model,
    *,
    revision: Revision = None,
    asked: JobOptions,
    device: Device = "auto",
    cache: Cache = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder that compress would write: is its disk large enough? [here]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what `compress` with the same options would remove from MODEL and why, and what it needs.

    Writes nothing.
    """
    with exit_codes(as_json=as_json):
        spec = job_spec({"model": model_reference(model, revision), **asked.parts()})
        from ghosted_core.preview import preview

        with working(cache_folder(cache), device) as place:
            found = preview(spec, place, (out or Path()).expanduser())
        if as_json:
            typer.echo(json.dumps(plan_document(found), allow_nan=False))
        else:
            _print(found)


def plan_document(found: "Preview") -> dict[str, Any]:
    """What `--json` prints."""
    estimated = asdict(found.estimate)
    for part, value in (("memory", found.estimate.memory), ("disk", found.estimate.disk)):
        estimated[part]["peak_bytes"] = value.peak_bytes
    return {
        "model": asdict(found.model),
        "removed": found.plan.removed,
        "kept": found.plan.kept,
        "boundaries": [(b.start, b.stop) for b in found.plan.boundaries],
        "scores": asdict(found.scores),
        "estimate": estimated,
        "room": asdict(found.room),
        "fits": not found.shortages,
        "shortages": found.shortages,
    }


def _print(found: "Preview") -> None:
    console = Console(highlight=False)
    removed = found.plan.removed
    console.print(
        f"Would remove {len(removed)} of {found.model.layer_count} layers: {ranges(removed)}", soft_wrap=True
    )
    console.print("\n".join(_reasons(found.scores)), markup=False, soft_wrap=True)
    console.print(_sizes(found.estimate))
    console.print(_needs(found.estimate, found.room))
    for sentence in found.shortages:
        console.print(sentence, style="bold red", markup=False, soft_wrap=True)
    console.print(
        "Estimated from sizes, without libraries or what a layer needs while it runs. Nothing was written.",
        soft_wrap=True,
    )


def _reasons(scores: "LayerScores") -> list[str]:
    lines = [score_lines(scores)]
    if scores.steps:
        steps = ", ".join(f"{layer} ({score:.6g})" for layer, score in scores.steps)
        lines.append(f"Removed one after another: {steps}")
    if scores.ties:
        lines.append(f"As good as the last one chosen, and kept: {ranges(scores.ties)}")
    if scores.protected:
        lines.append(f"Never removed by this criterion: {ranges(scores.protected)}")
    return lines


def _sizes(estimated: "Estimate") -> Table:
    table = Table()
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("parameters", f"{estimated.parameters_before:,}", f"{estimated.parameters_after:,}")
    table.add_row("of them operators", "", f"{estimated.operator_parameters:,}")
    table.add_row(f"bytes ({estimated.dtype})", _size(estimated.bytes_before), _size(estimated.bytes_after))
    return table


def _needs(estimated: "Estimate", room: "Room") -> Table:
    memory, disk = estimated.memory, estimated.disk
    table = Table()
    for heading in ("needed", "bytes", "free now"):
        table.add_column(heading, justify="left" if heading == "needed" else "right")
    for name, value, free in (
        ("memory: weights", memory.weights_bytes, ""),
        ("+ while scoring", memory.scoring_bytes, ""),
        ("+ while calibrating", memory.calibration_bytes, ""),
        ("  of them statistics", memory.statistics_bytes, ""),
        ("+ while training", memory.finetune_bytes, ""),
        ("+ while evaluating", memory.evaluation_bytes, ""),
        (f"memory at least ({room.device})", memory.peak_bytes, _known(room.memory_free_bytes)),
        ("disk: checkpoint", disk.checkpoint_bytes, ""),
        ("+ activations meanwhile", disk.scratch_bytes, ""),
        ("disk at least", disk.peak_bytes, _known(room.disk_free_bytes)),
    ):
        table.add_row(name, _size(value), free)
    return table


def _known(value: int | None) -> str:
    return "not known" if value is None else _size(value)


def _size(value: int) -> str:
    return f"{value / MEGA:,.1f} MB"
