"""Commands that begin jobs on a Ghosted service and follow them: submit, retry, watch."""

import sys
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from ghosted_cli import job_commands, listing_commands
from ghosted_cli.compress import Dtype, Layers, NoEvaluation, Remove, Seed, SequenceLength, Sequences, Windows
from ghosted_cli.connection import Json, KeyFile, ProfileName, Url, connect
from ghosted_cli.exits import INTERRUPTED, REFUSED, TRY_AGAIN, exit_codes
from ghosted_cli.job_commands import JobId
from ghosted_cli.request import strategy_choice, strategy_names, without_none
from ghosted_cli.service_output import print_job, print_metrics, print_validation
from ghosted_cli.service_progress import display, show
from ghosted_cli.submitting import (
    Texts,
    check_repeatable,
    forget_texts,
    hub_token,
    labels_of,
    spec_with_texts,
)
from ghosted_client import Client, Job
from ghosted_core.errors import QualityGateError
from ghosted_core.spec import is_hub_id

Wait = Annotated[bool, typer.Option("--wait", help="Watch the job until it ends.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="NAME=TEXT, given back with the job.")]
Deadline = Annotated[int | None, typer.Option(min=1, help="Seconds that the job may run.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", help="A text of your own: within 24 hours, it makes one job however often sent."
    ),
]
HubToken = Annotated[
    bool, typer.Option("--hub-token", help="Send the Hub token in $HF_TOKEN along, for gated models.")
]
Calibration = Annotated[
    str | None,
    typer.Option(help="Text to calibrate on: an alias, or a .txt or .jsonl file, which is uploaded."),
]
Evaluation = Annotated[
    str | None,
    typer.Option(help="Text to evaluate on: an alias, or a .txt or .jsonl file, which is uploaded."),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        help="Perplexity on wikitext2, c4, NAME=ALIAS or NAME=FILE, which is uploaded; several times.",
    ),
]
Strategy = Annotated[str, typer.Option(help=f"How layers are chosen: {strategy_names()}.")]
Recovery = Annotated[str, typer.Option(help="How cuts are repaired; see 'ghosted compress --help'.")]

app = typer.Typer(help="Jobs on a Ghosted service.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def submit(
    model: Annotated[
        str, typer.Argument(help="Hub id owner/name or owner/name@revision, or an alias of the service.")
    ],
    *,
    layers: Layers = None,
    remove: Remove = None,
    strategy: Strategy = "streamline",
    recovery: Recovery = "ghosted",
    calibration: Calibration = None,
    sequences: Sequences = None,
    sequence_length: SequenceLength = None,
    evaluation: Evaluation = None,
    windows: Windows = None,
    corpus: Corpus = None,
    no_evaluation: NoEvaluation = False,
    dtype: Dtype = "auto",
    seed: Seed = 0,
    label: Labels = None,
    deadline: Deadline = None,
    idempotency_key: Key = None,
    token: HubToken = False,
    validate: Annotated[
        bool,
        typer.Option("--validate", "--dry-run", help="Say what the job would do and need; submit nothing."),
    ] = False,
    wait: Wait = False,
    url: Url = None,
    key_file: KeyFile = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Submit a job that compresses MODEL."""
    with exit_codes(as_json=as_json), connect(url, key_file, profile) as client:
        fields = {
            "model": {"kind": "hub", "id": model} if is_hub_id(model) else model,
            "strategy": strategy_choice(strategy, remove),
            "layers": layers,
            "recovery": {"name": recovery},
            "calibration": without_none(
                {"sequences": sequences, "sequence_length": sequence_length, "seed": seed}
            ),
            "evaluation": None if no_evaluation else without_none({"windows": windows}),
            "dtype": dtype,
        }
        texts = Texts.of(calibration, None if no_evaluation else evaluation, [] if no_evaluation else corpus)
        check_repeatable(texts, idempotency_key)
        labels, sent_token = labels_of(label or []), hub_token(wanted=token)
        if validate:
            _validate(client, fields, texts, deadline, sent_token, as_json=as_json)
            return
        with spec_with_texts(client, fields, texts) as spec:
            job = client.submit(
                spec,
                labels=labels,
                deadline_seconds=deadline,
                idempotency_key=idempotency_key,
                hub_token=sent_token,
            )
        _begun(client, job, wait=wait, as_json=as_json)


def _validate(
    client: Client,
    fields: dict[str, Any],
    texts: Texts,
    deadline: int | None,
    sent_token: str | None,
    *,
    as_json: bool,
) -> None:
    with spec_with_texts(client, fields, texts) as spec:
        found = client.validate(spec, deadline_seconds=deadline, hub_token=sent_token)
    # They were there to be looked at; nothing is left of a look.
    forget_texts(client, spec)
    print_validation(found, as_json=as_json)


@app.command()
def retry(
    job_id: JobId,
    *,
    layers: Layers = None,
    remove: Remove = None,
    strategy: Annotated[str | None, typer.Option(help="Another way to choose layers.")] = None,
    recovery: Annotated[str | None, typer.Option(help="Another repair.")] = None,
    sequences: Sequences = None,
    sequence_length: SequenceLength = None,
    windows: Windows = None,
    no_evaluation: NoEvaluation = False,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    label: Labels = None,
    deadline: Deadline = None,
    idempotency_key: Key = None,
    token: HubToken = False,
    wait: Wait = False,
    url: Url = None,
    key_file: KeyFile = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Submit a clone of a job, with what the options change; the job itself stays as it is."""
    with exit_codes(as_json=as_json), connect(url, key_file, profile) as client:
        calibrating = without_none({"sequences": sequences, "sequence_length": sequence_length})
        chosen = strategy is not None or remove is not None
        edits = without_none(
            {
                "layers": layers,
                "strategy": strategy_choice(strategy or "", remove) if chosen else None,
                "recovery": None if recovery is None else {"name": recovery},
                "calibration": calibrating or None,
                "evaluation": None if windows is None else {"windows": windows},
                "dtype": dtype,
                "labels": None if label is None else labels_of(label),
                "deadline_seconds": deadline,
            }
        )
        if no_evaluation:
            # Here null is a value: nothing is measured.
            edits["evaluation"] = None
        sent_token = hub_token(wanted=token)
        job = client.retry(job_id, edits, idempotency_key=idempotency_key, hub_token=sent_token)
        _begun(client, job, wait=wait, as_json=as_json)


def _begun(client: Client, job: Job, *, wait: bool, as_json: bool) -> None:
    if not wait:
        print_job(job, as_json=as_json)
        return
    Console(stderr=True, highlight=False).print(f"Job {job.id}")
    _watch(client, job.id, None, as_json=as_json)


@app.command()
def watch(
    job_id: JobId,
    *,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up after so many seconds.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Follow a job until it ends; Ctrl-C ends the watching, not the job.

    Ends with 0 if the job succeeded, 10 if it failed or was cancelled, 20 if it may succeed another time.
    """
    with exit_codes(as_json=as_json), connect(url, key_file, profile) as client:
        _watch(client, job_id, timeout, as_json=as_json)


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
