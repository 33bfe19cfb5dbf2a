"""`ghosted evaluate`: one model or checkpoint, measured by itself."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from ghosted_cli.compare import Compared, finite
from ghosted_cli.compress import Cache, Device, Json
from ghosted_cli.exits import REFUSED, exit_codes
from ghosted_cli.measuring import (
    Corpus,
    Latency,
    Limit,
    NewTokens,
    Prompts,
    TaskData,
    Tasks,
    Template,
    corpus_choices,
    task_choices,
)
from ghosted_cli.request import cache_folder, model_reference, text_reference, without_none
from ghosted_cli.working import working
from ghosted_core.spec import DEFAULT_TEXT, Evaluation, ModelReference

if TYPE_CHECKING:
    from ghosted_core.evaluation import Evaluated


def evaluate(
    model: Compared,
    corpus: Corpus = None,
    text: Annotated[
        str | None,
        typer.Option(help=f"Text file or alias, in shuffled windows (without --corpus: {DEFAULT_TEXT})."),
    ] = None,
    tasks: Tasks = None,
    limit: Limit = None,
    task_data: TaskData = None,
    windows: Annotated[int, typer.Option(min=1, help="Windows of each text.")] = 16,
    sequence_length: Annotated[int | None, typer.Option(min=2, help="Tokens in a window.")] = None,
    prompt: Prompts = None,
    new_tokens: NewTokens = None,
    template: Template = None,
    latency: Latency = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Measure MODEL, or a checkpoint of ours: perplexity, benchmark tasks, continuations."""
    with exit_codes(as_json=as_json):
        reference = TypeAdapter[Any](ModelReference).validate_python(model_reference(model, None))
        evaluation = Evaluation.model_validate(
            without_none(
                {
                    "dataset": text_reference(text or (None if corpus else DEFAULT_TEXT)),
                    "windows": windows,
                    "sequence_length": sequence_length,
                    "corpora": corpus_choices(corpus),
                    "tasks": task_choices(tasks, limit),
                    "prompts": prompt,
                    "new_tokens": new_tokens,
                    "template": template,
                    "latency": latency,
                }
            )
        )
        from ghosted_core.evaluate.tasks import TaskPlace
        from ghosted_core.evaluation import evaluate_model

        with working(cache_folder(cache), device) as place:
            tasks_place = TaskPlace(task_data, place.cache / "tasks")
            found = evaluate_model(reference, evaluation, place, tasks_place, dtype=dtype)
        if as_json:
            typer.echo(json.dumps(finite(found.document()), allow_nan=False))
        else:
            _print(found)
        if not found.tasks_complete:
            # What was found is told; that something is missing is for scripts to see.
            raise typer.Exit(REFUSED)


def _print(found: "Evaluated") -> None:
    console = Console(highlight=False)
    table = Table(title=f"{found.name} ({found.architecture}, {found.dtype})")
    for heading in ("metric", "value", "standard error", "measured on"):
        table.add_column(heading, justify="left" if heading in {"metric", "measured on"} else "right")
    for metric in found.metrics:
        table.add_row(metric.name, f"{metric.value:,.4g}", *_about(metric.value, metric.detail))
    console.print(table)
    for one in found.continuations:
        console.print(f"{one.prompt!r} -> {one.text!r}", markup=False, soft_wrap=True)


def _about(value: float, detail: Any) -> tuple[str, str]:
    """The standard error, and windows or items."""
    error = detail.get("standard_error")
    if "standard_error_nll" in detail:
        # That of e^nll is e^nll times that of the nll.
        error = value * detail["standard_error_nll"]
    on = ""
    if "windows" in detail:
        on = f"{detail['windows']} windows of {detail['length']} tokens of {detail['dataset']}"
        if detail.get("part") == "evaluation":
            on += ", evaluation documents"
    elif "range" in detail:
        slowest, fastest = sorted(detail["range"])
        on = f"{detail['rounds']} rounds, {slowest:.4g} to {fastest:.4g}, {detail['threads']} threads"
    elif "what" in detail:
        on = detail["what"]
    elif "items" in detail:
        on = f"{detail['items']} items, {detail['shots']} examples"
    return "" if error is None else f"{error:.2g}", on
