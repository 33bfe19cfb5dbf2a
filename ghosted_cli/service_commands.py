"""Commands that talk to a Ghosted service: submit, watch, pull, cancel, jobs."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.table import Table

from ghosted_cli.compress import Layers, Strategy
from ghosted_cli.exits import INTERRUPTED, REFUSED, TRY_AGAIN, exit_codes
from ghosted_cli.request import job_spec, strategy_choice, without_none
from ghosted_cli.service_progress import display, harmless, show, standing
from ghosted_client import Client, Job, Metric
from ghosted_client.errors import NotAuthenticatedError, Problem
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec, is_hub_id

URL_VARIABLE = "GHOSTED_URL"
KEY_VARIABLE = "GHOSTED_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[str, typer.Option(envvar=URL_VARIABLE, help="Address of the service.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File that holds the API key (else ${KEY_VARIABLE}); never an argument, which others see."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, progress on stderr.")]
JobId = Annotated[UUID, typer.Argument(help="Id of the job.")]

app = typer.Typer(help="Jobs on a Ghosted service.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def submit(
    model: Annotated[
        str, typer.Argument(help="Hub id owner/name or owner/name@revision, or an alias of the service.")
    ],
    *,
    layers: Layers = None,
    remove: Annotated[str | None, typer.Option(help="Which layers instead: 3,5,8-12 (from 0).")] = None,
    strategy: Strategy = "streamline",
    recovery: Annotated[
        str, typer.Option(help="How cuts are repaired; see 'ghosted compress --help'.")
    ] = "ghosted",
    calibration: Annotated[str | None, typer.Option(help="Alias of the text to calibrate on.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Calibration windows.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens in a window.")] = None,
    windows: Annotated[int | None, typer.Option(help="Evaluation windows.")] = None,
    no_evaluation: Annotated[bool, typer.Option("--no-evaluation", help="Do not evaluate.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the choice of text.")] = 0,
    label: Annotated[list[str] | None, typer.Option(help="NAME=TEXT, given back with the job.")] = None,
    deadline: Annotated[int | None, typer.Option(help="Seconds that the job may run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch the job until it ends.")] = False,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Submit a job that compresses MODEL."""
    with exit_codes(as_json=as_json), _client(url, key_file) as client:
        calibrating = {"dataset": calibration, "sequences": sequences, "sequence_length": sequence_length}
        spec = job_spec(
            {
                "model": {"kind": "hub", "id": model} if is_hub_id(model) else model,
                "strategy": strategy_choice(strategy, remove),
                "layers": layers,
                "recovery": {"name": recovery},
                "calibration": without_none({**calibrating, "seed": seed}),
                "evaluation": None if no_evaluation else without_none({"windows": windows}),
                "dtype": dtype,
            }
        )
        _submit(client, spec, labels=_labels(label or []), deadline=deadline, wait=wait, as_json=as_json)


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not separator:
            raise InvalidSpecError(f"the label '{one}' is not of the form NAME=TEXT")
        labels[name] = text
    return labels


def _submit(
    client: Client, spec: JobSpec, *, labels: dict[str, str], deadline: int | None, wait: bool, as_json: bool
) -> None:
    job = client.submit(spec, labels=labels, deadline_seconds=deadline)
    if not wait:
        _print_job(job, as_json=as_json)
        return
    Console(stderr=True, highlight=False).print(f"Job {job.id}")
    _watch(client, job.id, as_json=as_json)


@app.command()
def watch(job_id: JobId, *, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: Json = False) -> None:
    """Follow a job until it ends; Ctrl-C ends the watching, not the job.

    Ends with 0 if the job succeeded, 10 if it failed or was cancelled, 20 if it may succeed another time.
    """
    with exit_codes(as_json=as_json), _client(url, key_file) as client:
        _watch(client, job_id, as_json=as_json)


def _watch(client: Client, job_id: UUID, *, as_json: bool) -> None:
    try:
        with display(sys.stderr) as where:
            job = show(client.watch(job_id), where) or client.get(job_id)
    except KeyboardInterrupt:
        typer.echo(f"The job goes on. Watch it with: ghosted watch {job_id}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _print_job(job, as_json=as_json)
    if job.state == "succeeded":
        if not as_json:
            _print_metrics(client.metrics(job_id))
            typer.echo(f"Fetch it with: ghosted pull {job_id} FOLDER")
        return
    raise typer.Exit(TRY_AGAIN if job.failure is not None and job.failure.retryable else REFUSED)


@app.command()
def pull(
    job_id: JobId,
    folder: Annotated[Path, typer.Argument(help="Folder to write; must not exist or be empty.")],
    *,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Fetch a job's artifact into FOLDER, check every file; started again, it goes on where it stopped."""
    with exit_codes(as_json=as_json), _client(url, key_file) as client:
        total = client.artifact(job_id).total_bytes
        console = Console(stderr=True, highlight=False)
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=total)
            artifact = client.pull(
                job_id, folder.expanduser(), on_bytes=lambda size: progress.advance(task, size)
            )
        if as_json:
            _print_json(
                {
                    "folder": str(folder),
                    **artifact.model_dump(mode="json", exclude={"files": {"__all__": {"url"}}}),
                }
            )
        else:
            typer.echo(f"{len(artifact.files)} files, {artifact.total_bytes:,} bytes, checked: {folder}")


@app.command()
def cancel(job_id: JobId, *, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: Json = False) -> None:
    """End a job: at once if it waits, within seconds if it runs."""
    with exit_codes(as_json=as_json), _client(url, key_file) as client:
        _print_job(client.cancel(job_id), as_json=as_json)


@app.command()
def jobs(
    *,
    limit: Annotated[int, typer.Option(min=1, max=100, help="The most jobs to list.")] = 20,
    after: Annotated[UUID | None, typer.Option(help="List those older than this job.")] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """List your jobs, newest first."""
    with exit_codes(as_json=as_json), _client(url, key_file) as client:
        page = client.list(limit=limit, after=after)
        if as_json:
            _print_json(page.model_dump(mode="json"))
            return
        table = Table(box=None)
        # An id that is cut short is of no use to the other commands.
        table.add_column("job", no_wrap=True, min_width=36)
        for title in ("model", "state", "created (UTC)"):
            table.add_column(title)
        for job in page.items:
            table.add_row(str(job.id), _model(job), standing(job), f"{job.created_at:%Y-%m-%d %H:%M:%S}")
        Console(highlight=False, markup=False).print(table)


def _client(url: str, key_file: Path | None) -> Client:
    return Client(url, _key(key_file))


def _key(key_file: Path | None) -> str | None:
    if key_file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        return key_file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        told = f"the key file {key_file} cannot be read: {type(error).__name__}"
        advice = "Name a file that holds the key and nothing else."
        raise NotAuthenticatedError(Problem(401, "unauthenticated", "No key", told, advice)) from error


def _model(job: Job) -> str:
    model = job.spec.get("model", {})
    return str(model.get("id") or model.get("alias"))


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, allow_nan=False))


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        _print_json(job.model_dump(mode="json"))
        return
    typer.echo(f"{job.id}  {standing(job)}")
    if job.failure is not None:
        failure = job.failure
        where = f" in stage {failure.stage}" if failure.stage else ""
        told = f"Error ({failure.code}), attempt {failure.attempt}{where}: {failure.message}"
        typer.echo(harmless(told), err=True)
        typer.echo(harmless(failure.advice), err=True)


def _print_metrics(metrics: tuple[Metric, ...]) -> None:
    for metric in metrics:
        value = metric.reason if metric.value is None else f"{metric.value:.4g}"
        typer.echo(f"{metric.name} = {value}")
