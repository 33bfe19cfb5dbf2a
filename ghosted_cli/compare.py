"""`ghosted compare`: two models side by side, measured in one run."""

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from ghosted_cli.compress import Cache, Device, Json
from ghosted_cli.exits import exit_codes
from ghosted_cli.request import cache_folder, model_reference, text_reference
from ghosted_cli.working import working
from ghosted_core.spec import DEFAULT_TEXT, ModelReference, TextReference

if TYPE_CHECKING:
    from ghosted_core.comparison import Comparison, Side

Compared = Annotated[str, typer.Argument(help="A checkpoint of ours, folder, GGUF file, Hub id or alias.")]


def compare(
    a: Compared,
    b: Compared,
    evaluation: Annotated[str, typer.Option(help="Text file or alias to evaluate on.")] = DEFAULT_TEXT,
    windows: Annotated[int, typer.Option(min=1, help="Evaluation windows.")] = 16,
    sequence_length: Annotated[int | None, typer.Option(min=2, help="Tokens in a window.")] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Prompt for the speed, in tokens.")] = 128,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens decoded for the speed.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each model for the speed.")] = 5,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    memory: Annotated[
        bool, typer.Option(help="Measure peak memory too, in a process of its own for each model.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of text.")] = 0,
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Measure models A and B on the same text, in turns: perplexity, size, tokens a second, memory."""
    with exit_codes(as_json=as_json):
        first, second = (
            TypeAdapter[Any](ModelReference).validate_python(model_reference(one, None)) for one in (a, b)
        )
        dataset = TypeAdapter[Any](TextReference).validate_python(text_reference(evaluation))
        from ghosted_core.comparison import Question, compare as measure

        question = Question(
            dataset=dataset,
            windows=windows,
            length=sequence_length,
            seed=seed,
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            rounds=rounds,
            dtype=dtype,
            memory=memory,
        )
        with working(cache_folder(cache), device) as place:
            found = measure(first, second, question, place)
        if as_json:
            typer.echo(json.dumps(finite(_document(found)), allow_nan=False))
        else:
            _print(found)


def _document(found: "Comparison") -> dict[str, Any]:
    document = asdict(found)
    for name, side in (("a", found.a), ("b", found.b)):
        if side.peak_memory is not None:
            document[name]["peak_memory"] = side.peak_memory.model_dump(mode="json")
    return document


def finite(value: Any) -> Any:
    """The same, with null for what is infinite or not a number: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(found: "Comparison") -> None:
    console = Console(highlight=False)
    table = Table()
    table.add_column("")
    for column in ("A", "B", "B / A"):
        table.add_column(column, justify="right")
    for row in _rows(found.a, found.b):
        table.add_row(*row)
    console.print(table)
    console.print("\n".join(_notes(found)), markup=False, soft_wrap=True)


def _notes(found: "Comparison") -> list[str]:
    speed, text = found.a.speed, found.text
    difference, error = found.nll_difference, found.nll_difference_standard_error
    measured = f"prompt of {speed.prompt_tokens} tokens, {speed.new_tokens} decoded"
    windows = f"{text['windows']} windows of {text['length']} tokens"
    machine = f"{found.a.threads} threads, {found.a.device}; slowest to fastest: {_spreads(found)}"
    notes = [
        f"A: {found.a.name}, B: {found.b.name}",
        f"NLL of B less that of A, window by window: {difference:+.4f} +- {error:.4f} nats a token",
        f"Text: {windows} of {text['dataset']}, {text['part']} documents",
        f"Speed: median of {speed.rounds} rounds in turns, {measured}, {machine}",
    ]
    if found.a.peak_memory is not None:
        notes.append(f"Peak memory: {found.a.peak_memory.what}")
    return notes


def _spreads(found: "Comparison") -> str:
    sides = (("A", found.a.speed), ("B", found.b.speed))
    return ", ".join(
        f"{name} prefill {_span(speed.prefill_range)}, decode {_span(speed.decode_range)}"
        for name, speed in sides
    )


def _span(pair: tuple[float, float]) -> str:
    return f"{pair[0]:,.1f}-{pair[1]:,.1f}"


def _rows(a: "Side", b: "Side") -> list[tuple[str, str, str, str]]:
    rows = [
        ("dtype", a.dtype, b.dtype, ""),
        ("perplexity", *_pair(a.perplexity.value, b.perplexity.value, "{:,.3f}")),
        ("NLL, nats a token", _with_error(a), _with_error(b), ""),
        ("parameters", *_pair(a.parameters, b.parameters, "{:,}")),
        ("bytes on disk", *_pair(a.bytes_on_disk, b.bytes_on_disk, "{:,}")),
        ("bytes in memory", *_pair(a.bytes_in_memory, b.bytes_in_memory, "{:,}")),
        ("prefill tokens/s", *_pair(a.speed.prefill, b.speed.prefill, "{:,.1f}")),
        ("decode tokens/s", *_pair(a.speed.decode, b.speed.decode, "{:,.1f}")),
        (
            "first token, seconds",
            *_pair(a.speed.first_token_seconds, b.speed.first_token_seconds, "{:.3f}"),
        ),
    ]
    if a.peak_memory is not None and b.peak_memory is not None:
        rows.append(("peak memory, bytes", *_pair(a.peak_memory.bytes, b.peak_memory.bytes, "{:,}")))
    return rows


def _pair(a: float, b: float, form: str) -> tuple[str, str, str]:
    return form.format(a), form.format(b), f"{b / a:.3f}" if a else ""


def _with_error(side: "Side") -> str:
    return f"{side.perplexity.nll:.4f} +- {side.perplexity.standard_error:.4f}"
