"""Commands that begin jobs on a Ghosted service and follow them: submit, retry, watch."""

import sys
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from ghosted_cli import job_commands, listing_commands
from ghosted_cli.compress import Revision
from ghosted_cli.connection import ServiceOptions
from ghosted_cli.exits import INTERRUPTED, REFUSED, TRY_AGAIN
from ghosted_cli.job_commands import JobId
from ghosted_cli.job_options import JobOptions
from ghosted_cli.options import spread
from ghosted_cli.request import hub_model, job_spec, without_none
from ghosted_cli.service_output import print_job, print_metrics, print_validation
from ghosted_cli.service_progress import display, show
from ghosted_cli.submitting import SubmissionOptions, Uploads, check_repeatable, service_text
from ghosted_client import Client, Job
from ghosted_core.errors import QualityGateError

app = typer.Typer(help="Jobs on a Ghosted service.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
@spread
def submit(
    model: Annotated[
        str, typer.Argument(help="Hub id owner/name or owner/name@revision, or an alias of the service.")
    ],
    *,
    revision: Revision = None,
    asked: JobOptions,
    beside: SubmissionOptions,
    validate: Annotated[
        bool,
        typer.Option("--validate", "--dry-run", help="Say what the job would do and need; submit nothing."),
    ] = False,
    service: ServiceOptions,
) -> None:
    """Submit a job that compresses MODEL; the options are those of `compress`.

    A text is an alias of the service, or a .txt or .jsonl file, which is uploaded.
    """
    with service.connected() as client:
        fields = {"model": hub_model(model, revision), **asked.parts(service_text)}
        # What is wrong otherwise is told before anything is sent.
        job_spec(fields)
        check_repeatable(fields, beside.idempotency_key)
        if validate:
            _validate(client, fields, beside, as_json=service.as_json)
            return
        labels, hub_token, uploads = beside.labels, beside.hub_token, Uploads(client)
        with uploads.forgotten_on_failure():
            job = client.submit(
                job_spec(uploads.named_in(fields)),
                labels=labels,
                deadline_seconds=beside.deadline,
                idempotency_key=beside.idempotency_key,
                hub_token=hub_token,
            )
        _begun(client, job, wait=beside.wait, as_json=service.as_json)


def _validate(client: Client, fields: dict[str, Any], beside: SubmissionOptions, *, as_json: bool) -> None:
    hub_token, uploads = beside.hub_token, Uploads(client)
    try:
        spec = job_spec(uploads.named_in(fields))
        found = client.validate(spec, deadline_seconds=beside.deadline, hub_token=hub_token)
    finally:
        # They were there to be looked at; nothing is left of a look.
        uploads.forget()
    print_validation(found, as_json=as_json)


@app.command()
@spread
def retry(job_id: JobId, *, asked: JobOptions, beside: SubmissionOptions, service: ServiceOptions) -> None:
    """Submit a clone of a job, with what the options change; the job itself stays as it is.

    The options are those of `submit`. A repair takes the old one's place with all its settings.
    """
    with service.connected() as client:
        asked.check_names_repair()
        edits = {
            **asked.parts(service_text),
            **without_none({"labels": beside.labels, "deadline_seconds": beside.deadline}),
        }
        check_repeatable(edits, beside.idempotency_key)
        hub_token, uploads = beside.hub_token, Uploads(client)
        with uploads.forgotten_on_failure():
            job = client.retry(
                job_id,
                uploads.named_in(edits),
                idempotency_key=beside.idempotency_key,
                hub_token=hub_token,
            )
        _begun(client, job, wait=beside.wait, as_json=service.as_json)


def _begun(client: Client, job: Job, *, wait: bool, as_json: bool) -> None:
    if not wait:
        print_job(job, as_json=as_json)
        return
    Console(stderr=True, highlight=False).print(f"Job {job.id}")
    _watch(client, job.id, None, as_json=as_json)


@app.command()
@spread
def watch(
    job_id: JobId,
    *,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up after so many seconds.")] = None,
    service: ServiceOptions,
) -> None:
    """Follow a job until it ends; Ctrl-C ends the watching, not the job.

    Ends with 0 if the job succeeded, 10 if it failed or was cancelled, 20 if it may succeed another time.
    """
    with service.connected() as client:
        _watch(client, job_id, timeout, as_json=service.as_json)


def _watch(client: Client, job_id: UUID, timeout: float | None, *, as_json: bool) -> None:
    try:
        with display(sys.stderr) as where:
            seen = client.watch(job_id, timeout_seconds=timeout)
            job = show(seen, where) or client.get(job_id)
    except KeyboardInterrupt:
        typer.echo(f"The job goes on. Watch it with: ghosted watch {job_id}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    print_job(job, as_json=as_json)
    if job.state == "succeeded":
        if not as_json:
            print_metrics(client.metrics(job_id))
            typer.echo(f"Fetch it with: ghosted pull {job_id} FOLDER")
        return
    if _is_kept(job) and not as_json:
        print_metrics(client.metrics(job_id))
        typer.echo(f"It missed its gate and is kept. Fetch it with: ghosted pull {job_id} FOLDER")
    raise typer.Exit(TRY_AGAIN if job.failure is not None and job.failure.retryable else REFUSED)


def _is_kept(job: Job) -> bool:
    """Whether the job failed for its result's sake, which is there all the same."""
    missed = job.failure is not None and job.failure.code == QualityGateError.code
    return missed and (job.spec.get("evaluation") or {}).get("on_miss") == "keep"


for command in (
    job_commands.jobs,
    job_commands.events,
    job_commands.logs,
    job_commands.pull,
    job_commands.cancel,
    job_commands.delete,
    listing_commands.models,
    listing_commands.datasets,
    listing_commands.uploads,
    listing_commands.workers,
):
    app.command()(command)
