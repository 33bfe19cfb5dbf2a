"""`ghosted.json`: what a checkpoint is, how it was made, and what its files must hold."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from ghosted_core.errors import CheckpointError, NonFiniteError
from ghosted_core.spec import JobSpec

MANIFEST_NAME = "ghosted.json"
READ_BYTES = 1 << 20
PROBE_TOKENS = 24
PROBE_TOP = 4


class Record(BaseModel):
    """A part of the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(Record):
    """Size and SHA-256 (hexadecimal) of a file."""

    size_bytes: int
    sha256: str


class SourceRecord(Record):
    """The model that was compressed, pinned as far as its source allows; its licence, as it says itself."""

    reference: dict[str, Any]
    commit: str | None
    fingerprint: str
    architecture: str
    layer_count: int
    parameters: int
    licence: str | None = None
    licence_file: str | None = None


class PlanRecord(Record):
    """Which layers of the source went, and the runs they form."""

    removed: tuple[int, ...]
    kept: tuple[int, ...]
    boundaries: tuple[tuple[int, int], ...]
    scores: dict[str, Any]


class Probe(Record):
    """Answers to fixed token ids: the highest logits and their tokens at each position.

    Whoever loads the checkpoint can ask the same and compare.
    """

    input_ids: tuple[int, ...]
    top_tokens: tuple[tuple[int, ...], ...]
    top_logits: tuple[tuple[float, ...], ...]


class Manifest(Record):
    """The whole of `ghosted.json`; `files` covers every other file of the checkpoint.

    `spec` is the public form of the job's spec, `spec_digest` the digest of the spec itself. `layer_kinds`
    says of each layer what it was in the source; see `model.kinds`. `details` says of metrics on what they
    were measured and how exactly; `gate` how the result was judged; `tasks_complete` whether all benchmark
    tasks that were asked for have figures. `finetune` says what was trained after
    the repair, on how much text and with what effect; it is left out where nothing was.
    """

    format: Literal[1] = 1
    spec: JobSpec
    spec_digest: str
    source: SourceRecord
    plan: PlanRecord
    operators: tuple[str, ...]
    layer_kinds: tuple[str, ...]
    fits: tuple[dict[str, Any], ...]
    calibration: dict[str, Any] | None
    evaluation: dict[str, Any] | None
    corpora: dict[str, dict[str, Any]] = {}
    finetune: dict[str, Any] | None = Field(default=None, exclude_if=lambda found: found is None)
    metrics: dict[str, float | None]
    details: dict[str, dict[str, Any]] = {}
    gate: dict[str, Any] | None = None
    tasks_complete: bool = Field(default=True, exclude_if=lambda complete: complete)
    generations: dict[str, dict[str, str]]
    parameters: int
    dtype: str
    probe: Probe
    versions: dict[str, str]
    files: dict[str, FileEntry] = {}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the checkpoint in `folder`.

    Raises:
        CheckpointError: there is none, or it cannot be understood.
    """
    path = folder / MANIFEST_NAME
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"'{folder}' has no readable {MANIFEST_NAME}: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(f"{MANIFEST_NAME} is not valid at '{where}': {first['msg']}.") from error


def file_entry(path: Path) -> FileEntry:
    """Size and digest of the file at `path`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return FileEntry(size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def check_files(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Make sure that the checkpoint's files are exactly those of the manifest.

    Raises:
        CheckpointError: one is missing, altered or not listed.
    """
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if missing := sorted(set(files) - present):
        raise CheckpointError(f"Files of the checkpoint are missing: {', '.join(missing)}.")
    if stray := sorted(present - set(files) - {MANIFEST_NAME}):
        raise CheckpointError(f"Files that the manifest does not list: {', '.join(stray)}.")
    for name, expected in files.items():
        if file_entry(folder / name) != expected:
            raise CheckpointError(f"'{name}' is not the file that was written: size or SHA-256 differ.")


@torch.no_grad()
def probe(model: nn.Module, vocabulary: int) -> Probe:
    """Ask `model` the fixed question; no user's text takes part in it.

    Raises:
        NonFiniteError: an answer is infinite or not a number, which nobody could compare with.
    """
    device = next(model.parameters()).device
    ids = [(7 + 7919 * position) % vocabulary for position in range(PROBE_TOKENS)]
    logits = model(input_ids=torch.tensor([ids], device=device)).logits[0].float()
    if not bool(logits.isfinite().all()):
        raise NonFiniteError("The result answers with logits that are infinite or not numbers.")
    top = logits.topk(min(PROBE_TOP, logits.shape[-1]), dim=-1)
    return Probe(
        input_ids=tuple(ids),
        top_tokens=tuple(tuple(row) for row in top.indices.tolist()),
        top_logits=tuple(tuple(row) for row in top.values.tolist()),
    )
