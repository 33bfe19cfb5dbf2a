"""One file of a stage cache: tensors and facts that know under which key they belong."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

HEADER = "ghosted_stage"


class TornEntryError(Exception):
    """The file is cut short, altered, or belongs to another key."""


@dataclass(frozen=True)
class Entry:
    """What a stage found: tensors by name, and the rest as JSON text."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: str = ""


class _Label(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    key: str
    sha256: str
    facts: str


def save_entry(path: Path, key: str, entry: Entry) -> None:
    """Write `entry` as one safetensors file that names its key and the SHA-256 of all it holds.

    Raises:
        OSError: the disk is full or refuses.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in entry.tensors.items()}
    whole = Entry(tensors, entry.facts)
    label = _Label(key=key, sha256=_sha256(key, whole), facts=entry.facts)
    try:
        save_file(tensors, path, metadata={HEADER: label.model_dump_json()})
    except SafetensorError as error:
        raise OSError(str(error)) from error


def load_entry(path: Path, key: str) -> Entry:
    """What `save_entry` wrote under `key`, on the CPU, bit for bit.

    Raises:
        TornEntryError: it is not that, or not all of it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            label = _Label.model_validate_json((file.metadata() or {}).get(HEADER, ""))
            # Copies: they do not change with the file, and lie in memory as fresh ones do. Kernels go
            # other ways, and round otherwise, where numbers are not aligned.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValidationError) as error:
        raise TornEntryError(type(error).__name__) from error
    entry = Entry(tensors, label.facts)
    if label.key != key:
        raise TornEntryError("another key")
    if label.sha256 != _sha256(key, entry):
        raise TornEntryError("another digest")
    return entry


def _sha256(key: str, entry: Entry) -> str:
    shapes = [(name, str(t.dtype), list(t.shape)) for name, t in sorted(entry.tensors.items())]
    digest = hashlib.sha256(json.dumps([key, entry.facts, shapes]).encode())
    for _, tensor in sorted(entry.tensors.items()):
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor on the CPU, row by row; copied only if they do not lie so."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
