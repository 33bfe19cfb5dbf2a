"""What commands that talk to a service print on stdout."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ghosted_cli.render import ranges
from ghosted_cli.service_progress import harmless, line_of, standing
from ghosted_client import Event, Job, LogLine, Metric, Validation

GIGA = 1e9


def print_json(document: Any) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(document, allow_nan=False))


def print_job(job: Job, *, as_json: bool) -> None:
    """The job, and on stderr why it failed, if it did."""
    if as_json:
        print_json(job.model_dump(mode="json"))
        return
    typer.echo(f"{job.id}  {standing(job)}")
    if job.failure is not None:
        failure = job.failure
        where = f" in stage {failure.stage}" if failure.stage else ""
        told = f"Error ({failure.code}), attempt {failure.attempt}{where}: {failure.message}"
        typer.echo(harmless(told), err=True)
        typer.echo(harmless(failure.advice), err=True)


def print_jobs(jobs: list[Job]) -> None:
    """A table of jobs."""
    table = Table(box=None)
    # An id that is cut short is of no use to the other commands.
    table.add_column("job", no_wrap=True, min_width=36)
    for title in ("model", "state", "created (UTC)"):
        table.add_column(title)
    for job in jobs:
        table.add_row(str(job.id), _model(job), standing(job), f"{job.created_at:%Y-%m-%d %H:%M:%S}")
    Console(highlight=False, markup=False).print(table)


def print_event(event: Event, *, as_json: bool) -> None:
    """An event in a line."""
    if as_json:
        print_json(event.model_dump(mode="json"))
    else:
        typer.echo(f"{event.number:>5}  {event.at:%Y-%m-%d %H:%M:%S}  {line_of(event)}")


def print_log(line: LogLine, *, as_json: bool) -> None:
    """A line of the log in a line."""
    if as_json:
        print_json(line.model_dump(mode="json"))
    else:
        typer.echo(harmless(f"{line.at:%Y-%m-%d %H:%M:%S}  {line.level:<7}  {line.message}"))


def print_metrics(metrics: tuple[Metric, ...]) -> None:
    """A line a figure."""
    for metric in metrics:
        value = metric.reason if metric.value is None else f"{metric.value:.4g}"
        typer.echo(f"{metric.name} = {value}")


def print_validation(found: Validation, *, as_json: bool) -> None:
    """What a submission would do and need; warnings on stderr."""
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    typer.echo("The service would accept this.")
    for line in (*_choice(found), *_needs(found)):
        typer.echo(line)
    for warning in found.warnings:
        typer.echo(harmless(f"Warning ({warning.code}): {warning.detail}"), err=True)


def _choice(found: Validation) -> list[str]:
    if found.removed is not None:
        since = ", as an earlier job found" if found.from_earlier else ""
        return [f"removes layers {ranges(found.removed)}{since}"]
    if found.candidates is None or found.layers_removed is None:
        return []
    return [f"removes {found.layers_removed} layers, chosen among {len(found.candidates.choices)} candidates"]


def _needs(found: Validation) -> list[str]:
    needs = found.estimate
    if needs is None:
        return []
    return [
        f"parameters {needs.parameters_before:,} -> {needs.parameters_after:,}",
        f"weights {needs.bytes_before / GIGA:.2f} -> {needs.bytes_after / GIGA:.2f} GB ({needs.dtype})",
        f"needs {needs.memory.peak_bytes / GIGA:.2f} GB of memory",
        f"needs {needs.disk.peak_bytes / GIGA:.2f} GB of disk",
        f"takes roughly {needs.time.gpu_seconds:,.0f} s on a GPU, {needs.time.cpu_seconds:,.0f} s on a CPU",
    ]


def _model(job: Job) -> str:
    model = job.spec.get("model", {})
    return str(model.get("id") or model.get("alias"))
