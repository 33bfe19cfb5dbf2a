"""`ghosted inspect` and `ghosted verify`: looking at a model, and making sure of a checkpoint."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from ghosted_cli.compress import Cache, Device, Json, Model, Revision
from ghosted_cli.exits import exit_codes
from ghosted_cli.request import cache_folder, local_catalog, model_reference, text_reference, without_none
from ghosted_cli.scores import refuse_checkpoint, scores_spec, show_scores
from ghosted_cli.service_progress import harmless
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import ModelReference


def inspect(
    model: Model,
    revision: Revision = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Run text through it once; say what criteria would remove.")
    ] = False,
    heat_map: Annotated[
        Path | None, typer.Option(help="With --scores: write cos(x_i, x_j) of all states as this PNG.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="With --scores: how many layers would go, or which share [25%].")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="With --scores: text file or alias.")] = None,
    sequences: Annotated[int | None, typer.Option(help="With --scores: windows of text.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="With --scores: tokens in a window.")] = None,
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Say what MODEL is: its sizes and layers. Reads no weights unless asked for scores."""
    with exit_codes(as_json=as_json):
        reference = model_reference(model, revision)
        text = {
            "dataset": text_reference(calibration),
            "sequences": sequences,
            "sequence_length": sequence_length,
        }
        if not scores:
            _refuse_without_scores({**text, "layers": layers, "heat_map": heat_map})
            _show(reference, cache_folder(cache), as_json=as_json)
            return
        if (folder := _checkpoint_folder(reference)) is not None:
            refuse_checkpoint(folder)
        show_scores(
            scores_spec(reference, layers, without_none(text)),
            heat_map=heat_map.expanduser() if heat_map is not None else None,
            cache=cache_folder(cache),
            device=device,
            as_json=as_json,
            title=Path(model).name,
        )


def verify(
    folder: Annotated[Path, typer.Argument(help="A checkpoint made by ghosted.")],
    device: Device = "auto",
    prompt: Annotated[list[str] | None, typer.Option(help="Continue this text, greedily.")] = None,
    new_tokens: Annotated[int, typer.Option(help="Length of the continuations.")] = 24,
    as_json: Json = False,
) -> None:
    """Check every file of a checkpoint, load it, and compare its answers with those at its making."""
    with exit_codes(as_json=as_json):
        from ghosted_core.checkpoint.patched import verify_checkpoint
        from ghosted_core.device import pick_device

        verified = verify_checkpoint(folder.expanduser(), device=pick_device(device))
        texts = verified.continue_greedily(prompt or [], new_tokens)
        document = {"path": str(folder), "verified": True, "continuations": texts}
        if as_json:
            typer.echo(json.dumps(document))
            return
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.print(f"{folder}: all files as written, loads, answers as it did when it was made.")
        for text, continuation in texts.items():
            console.print(f"{text}{harmless(continuation)}")


def _checkpoint_folder(reference: Any) -> Path | None:
    """The folder, if it is one that `compress` made."""
    from ghosted_core.checkpoint.manifest import MANIFEST_NAME

    if not isinstance(reference, dict) or "path" not in reference:
        return None
    folder = Path(reference["path"])
    return folder if (folder / MANIFEST_NAME).is_file() else None


def _refuse_without_scores(options: dict[str, Any]) -> None:
    if without_none(options):
        raise InvalidSpecError(
            "--calibration, --sequences, --sequence-length, --layers and --heat-map have no meaning "
            "without --scores.",
            advice="Add --scores, or leave them out.",
        )


def _show(reference: Any, cache: Path, *, as_json: bool) -> None:
    folder = _checkpoint_folder(reference)
    if folder is not None:
        _show_checkpoint(folder, as_json=as_json)
    else:
        _show_source(reference, cache, as_json=as_json)


def _show_source(reference: Any, cache: Path, *, as_json: bool) -> None:
    from huggingface_hub import get_token

    from ghosted_core.checkpoint.source import resolve
    from ghosted_core.describe import describe
    from ghosted_core.model.families import SUPPORTED

    source = resolve(
        TypeAdapter(ModelReference).validate_python(reference),
        catalog=local_catalog(),
        cache=cache,
        hub_token=get_token(),
        log=Console(stderr=True, highlight=False, markup=False).print,
        supported=SUPPORTED,
    )
    description = asdict(describe(source))
    if as_json:
        typer.echo(json.dumps(description))
        return
    table = Table(show_header=False)
    for name, value in description.items():
        if name != "layer_parameters" and value is not None:
            table.add_row(name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
    shares = description["layer_parameters"]
    table.add_row(
        "each layer holds", f"{100 * shares[0] / description['parameters']:.2f} % of the parameters"
    )
    Console(highlight=False).print(table)


def _show_checkpoint(folder: Path, *, as_json: bool) -> None:
    from ghosted_cli.render import comparison, fit_lines
    from ghosted_core.checkpoint.manifest import read_manifest

    manifest = read_manifest(folder)
    if as_json:
        typer.echo(manifest.model_dump_json())
        return
    console = Console(highlight=False)
    console.print(comparison(manifest))
    console.print(fit_lines(manifest), markup=False, soft_wrap=True)
