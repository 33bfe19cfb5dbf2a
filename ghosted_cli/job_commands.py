"""Commands about jobs that a service has: jobs, events, logs, pull, cancel, delete."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from ghosted_cli.connection import ServiceOptions
from ghosted_cli.exits import REFUSED
from ghosted_cli.options import spread
from ghosted_cli.service_output import print_event, print_job, print_jobs, print_json, print_log
from ghosted_cli.submitting import labels_of
from ghosted_cli.transfer_progress import transfer_shown
from ghosted_client import Client, Event, LogLine, State
from ghosted_core.errors import InvalidSpecError

JobId = Annotated[UUID, typer.Argument(help="Id of the job.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the job ends.")]
# In UTC, as everything that the service says.
MOMENTS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


@spread
def jobs(
    *,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    model: Annotated[str | None, typer.Option(help="Only those of this Hub repository or alias.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only those with this label, NAME=TEXT; all of several.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=MOMENTS, help="Only those submitted then or later (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=MOMENTS, help="Only those submitted before then (UTC).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most jobs to list.")] = 20,
    after: Annotated[UUID | None, typer.Option(help="List those older than this job.")] = None,
    service: ServiceOptions,
) -> None:
    """List your jobs, newest first."""
    with service.connected() as client:
        found = list(
            client.jobs(
                limit=limit,
                after=after,
                state=state,
                model=model,
                labels=labels_of(label or []),
                created_from=since and since.replace(tzinfo=UTC),
                created_before=until and until.replace(tzinfo=UTC),
            )
        )
        if service.as_json:
            print_json({"items": [job.model_dump(mode="json") for job in found]})
        else:
            print_jobs(found)


@spread
def events(
    job_id: JobId,
    *,
    after: Annotated[int, typer.Option(min=0, help="Only those numbered above this.")] = 0,
    follow: Follow = False,
    service: ServiceOptions,
) -> None:
    """Print what happened to a job, a line an event; with --json a JSON document a line."""
    with service.connected() as client:
        for event in client.events(job_id, after=after, follow=follow):
            print_event(event, as_json=service.as_json)


@spread
def logs(
    job_id: JobId,
    *,
    lines: Annotated[int, typer.Option(min=1, max=1000, help="The most lines of the past.")] = 200,
    follow: Follow = False,
    service: ServiceOptions,
) -> None:
    """Print the end of a job's log; with --json a JSON document a line."""
    with service.connected() as client:
        tail = client.log(job_id, lines=lines).items
        for line in tail:
            print_log(line, as_json=service.as_json)
        if follow:
            _follow_log(client, job_id, tail[-1].number if tail else 0, as_json=service.as_json)


def _follow_log(client: Client, job_id: UUID, after: int, *, as_json: bool) -> None:
    for event in client.events(job_id, after=after, follow=True):
        if event.type == "log":
            print_log(_log_line(event), as_json=as_json)


def _log_line(event: Event) -> LogLine:
    level, message = event.payload.get("level", "info"), event.payload.get("message", "")
    return LogLine(
        number=event.number, attempt=event.attempt, level=str(level), message=str(message), at=event.at
    )


@spread
def pull(
    job_id: JobId,
    folder: Annotated[Path, typer.Argument(help="Folder to write; must not exist or be empty.")],
    *,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Files at a time.")] = 4,
    service: ServiceOptions,
) -> None:
    """Fetch a job's artifact into FOLDER, check every file; started again, it goes on where it stopped."""
    kept = "Interrupted; what has arrived is kept, and the same command goes on from there."
    with service.connected(interrupted=kept) as client:
        total = client.artifact(job_id).total_bytes
        with transfer_shown("pull", total) as on_bytes:
            artifact = client.pull(job_id, folder.expanduser(), on_bytes=on_bytes, workers=workers)
        if service.as_json:
            # Without the links, which open the files to anyone.
            shown = artifact.model_dump(mode="json", exclude={"files": {"__all__": {"url"}}})
            print_json({"folder": str(folder), **shown})
        else:
            if artifact.missed_gate:
                typer.echo("This result missed its quality gate; README.md says by how much.", err=True)
            typer.echo(f"{len(artifact.files)} files, {artifact.total_bytes:,} bytes, checked: {folder}")


@spread
def cancel(
    job_id: JobId,
    *,
    service: ServiceOptions,
) -> None:
    """End a job: at once if it waits, within seconds if it runs."""
    with service.connected() as client:
        print_job(client.cancel(job_id), as_json=service.as_json)


@spread
def delete(
    job_id: JobId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    service: ServiceOptions,
) -> None:
    """Delete a job that has ended, with all its files; it cannot be brought back. Asks first."""
    with service.connected() as client:
        if not yes:
            _confirm(job_id)
        client.delete(job_id)
        if service.as_json:
            print_json({"deleted": str(job_id)})
        else:
            typer.echo(f"{job_id}  deleted")


def _confirm(job_id: UUID) -> None:
    """Return if the user agrees.

    Raises:
        InvalidSpecError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise InvalidSpecError("there is no terminal to ask on", advice="Say --yes to delete without asking.")
    if not typer.confirm(f"Delete job {job_id} with all its files?", err=True):
        typer.echo("Nothing is deleted.", err=True)
        raise typer.Exit(REFUSED)
