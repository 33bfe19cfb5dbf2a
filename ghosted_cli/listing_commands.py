"""Commands that list what a service has beside jobs: models, datasets, uploads, workers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from ghosted_cli.connection import ServiceOptions
from ghosted_cli.options import spread
from ghosted_cli.service_output import print_json
from ghosted_cli.service_progress import harmless
from ghosted_client import KnownDataset, KnownModel, Upload, Worker
from ghosted_client.holdings import Origin
from ghosted_client.models import Answer

GIB = 1 << 30

Item = TypeVar("Item", bound=Answer)


@spread
def models(*, service: ServiceOptions) -> None:
    """List the models that the service knows by an alias; every other one is named as on the Hub."""
    with service.connected() as client:
        _print(
            client.models(),
            ("alias", "layers", "parameters", "from", "title"),
            _model,
            as_json=service.as_json,
        )


@spread
def datasets(*, service: ServiceOptions) -> None:
    """List the texts that the service knows by an alias; every other one is uploaded."""
    with service.connected() as client:
        _print(client.datasets(), ("alias", "from", "title"), _dataset, as_json=service.as_json)


@spread
def uploads(
    *,
    limit: Annotated[int, typer.Option(min=1, help="The most uploads to list.")] = 20,
    service: ServiceOptions,
) -> None:
    """List your uploads that are still kept, newest first."""
    with service.connected() as client:
        titles = ("upload", "bytes", "documents", "kept until (UTC)")
        _print(list(client.uploads(limit=limit)), titles, _upload, as_json=service.as_json)


@spread
def workers(*, service: ServiceOptions) -> None:
    """List the workers: what each has and does. Takes a key of the scope admin."""
    with service.connected() as client:
        titles = ("worker", "device", "class", "free GiB", "state", "last seen (UTC)")
        _print(client.workers(), titles, _worker, as_json=service.as_json)


def _print(
    items: Sequence[Item], titles: Iterable[str], row: Callable[[Item], tuple[str, ...]], *, as_json: bool
) -> None:
    if as_json:
        print_json({"items": [item.model_dump(mode="json") for item in items]})
        return
    first, *others = titles
    table = Table(box=None)
    # What is cut short is of no use to the other commands.
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title)
    for item in items:
        table.add_row(*(harmless(text) for text in row(item)))
    Console(highlight=False, markup=False).print(table)


def _model(model: KnownModel) -> tuple[str, ...]:
    return (model.alias, _number(model.layer_count), _number(model.parameters), *_source(model))


def _dataset(dataset: KnownDataset) -> tuple[str, ...]:
    return (dataset.alias, *_source(dataset))


def _source(known: KnownModel | KnownDataset) -> tuple[str, str]:
    return _place(known.origin), known.title or ""


def _place(origin: Origin) -> str:
    if origin.name is None:
        return "the workers"
    return f"{origin.name}@{origin.version}" if origin.version else origin.name


def _upload(upload: Upload) -> tuple[str, ...]:
    documents = _number(upload.documents) if upload.complete else "not complete"
    return str(upload.id), _number(upload.size_bytes), documents, f"{upload.expires_at:%Y-%m-%d %H:%M}"


def _worker(worker: Worker) -> tuple[str, ...]:
    device = ", ".join(device.name for device in worker.devices)
    free = "" if worker.free_memory_bytes is None else f"{worker.free_memory_bytes / GIB:.1f}"
    state = "gone" if not worker.live else "busy" if worker.busy else "idle"
    return worker.id, device, worker.memory_class, free, state, f"{worker.last_seen_at:%Y-%m-%d %H:%M:%S}"


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
