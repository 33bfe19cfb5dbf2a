"""From command-line options to what is to be measured, shared by `evaluate` and the commands of jobs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ghosted_cli.request import ReadText, setting, text_reference, without_none
from ghosted_core.errors import InvalidSpecError

Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        help="Perplexity on wikitext2, ptb=FILE, c4, NAME=FILE or NAME=ALIAS; may be given several times.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--tasks", help="Tasks of lm-evaluation-harness: boolq,arc_easy; NAME:5 for five examples."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="First items of each task only.")]
TaskData = Annotated[
    Path | None, typer.Option(help="Folder with the items of the tasks, such as boolq_validation.jsonl.")
]
Gate = Annotated[
    list[str] | None,
    typer.Option(
        "--gate", help="Bound of a metric: perplexity:max_ratio=1.5, acc_boolq:max_drop=0.05; several times."
    ),
]
Latency = Annotated[
    bool, typer.Option("--latency", help="Measure tokens a second and peak memory where the models run.")
]
OnMiss = Annotated[
    str | None, typer.Option(help="What becomes of a checkpoint that misses its gate: withhold or keep.")
]
Prompts = Annotated[list[str] | None, typer.Option("--prompt", help="To go on from; several times.")]
NewTokens = Annotated[int | None, typer.Option(min=1, max=512, help="Length of continuations.")]
Template = Annotated[str | None, typer.Option(help="Chat template of prompts: auto or none.")]


def corpus_choices(texts: list[str] | None, read: ReadText = text_reference) -> list[dict[str, Any]]:
    """'NAME' or 'NAME=TEXT' as corpora of a spec, the text as `read` says."""
    return [_corpus(text, read) for text in texts or ()]


def task_choices(texts: list[str] | None, limit: int | None) -> list[dict[str, Any]]:
    """'NAME,NAME:SHOTS,...' as tasks of a spec."""
    names = [name for text in texts or () for name in text.split(",") if name]
    return [_task(name, limit) for name in names]


def gate_choices(texts: list[str] | None) -> list[dict[str, Any]]:
    """'METRIC:LIMIT=VALUE,...' as bounds of a spec.

    Raises:
        InvalidSpecError: another form.
    """
    return [_bound(text) for text in texts or ()]


def _corpus(text: str, read: ReadText) -> dict[str, Any]:
    name, _, place = text.partition("=")
    return without_none({"name": name, "dataset": read(place or None)})


def _task(text: str, limit: int | None) -> dict[str, Any]:
    name, _, shots = text.partition(":")
    return without_none({"name": name, "shots": setting(shots) if shots else None, "limit": limit})


def _bound(text: str) -> dict[str, Any]:
    metric, _, limits = text.partition(":")
    pairs = [limit.partition("=") for limit in limits.split(",") if limit]
    if not pairs or not all(name and separator for name, separator, _ in pairs):
        raise InvalidSpecError(f"The gate '{text}' is not of the form METRIC:LIMIT=VALUE,...")
    return {"metric": metric, **{name.strip(): setting(value.strip()) for name, _, value in pairs}}
