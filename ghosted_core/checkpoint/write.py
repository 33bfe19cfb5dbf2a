"""A finished checkpoint folder, or none."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ghosted_core.checkpoint import modeling_ghosted
from ghosted_core.checkpoint.card import model_card
from ghosted_core.checkpoint.guard import check_weights
from ghosted_core.checkpoint.load import copy_source_files
from ghosted_core.checkpoint.manifest import MANIFEST_NAME, FileEntry, Manifest, file_entry
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.errors import DiskFullError, OutputUnusableError
from ghosted_core.folders import put, require_free, temporary_sibling, unusable

# The pipeline asks `require_free` of this module, beside `require_space`.
__all__ = ["require_free", "require_space", "unique_tensors", "write_checkpoint"]
NOTHING: Mapping[str, str] = MappingProxyType({})
SHARD_SIZE = "4GB"
DISK_MARGIN = 1.05  # room for everything that is not weights


def require_space(destination: Path, size_bytes: int) -> None:
    """Make sure that `size_bytes` of weights will fit at `destination`.

    Raises:
        DiskFullError: they will not.
    """
    folder = next(parent for parent in destination.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < size_bytes * DISK_MARGIN:
        raise DiskFullError(
            f"The checkpoint needs {size_bytes * DISK_MARGIN / 1e9:.1f} GB in '{folder}', "
            f"where {free / 1e9:.1f} GB are free."
        )


def write_checkpoint(
    model: PreTrainedModel,
    source: ModelSource,
    manifest: Manifest,
    destination: Path,
    documents: Mapping[str, str] = NOTHING,
) -> Manifest:
    """Write everything to a temporary sibling, then rename it to `destination`.

    `documents` are further text files by name.
    `model` is of a stock class or of a patched one. Returns the manifest with the files filled in.
    A failure or an interrupt leaves nothing behind.

    Raises:
        OutputExistsError: something is at `destination`.
        OutputUnusableError: nothing can be written there.
        DiskFullError: the disk filled up.
    """
    require_free(destination)
    with _temporary_sibling(destination) as folder:
        _write_weights(_named_as_in(source, model), folder)
        _write_config(model, folder)
        copy_source_files(source, folder)
        (folder / "README.md").write_text(model_card(manifest), encoding="utf-8")
        for name, text in documents.items():
            (folder / name).write_text(text, encoding="utf-8")
        complete = manifest.model_copy(update={"files": _entries(folder)})
        (folder / MANIFEST_NAME).write_text(complete.model_dump_json(indent=2) + "\n", encoding="utf-8")
        _sync(folder)
        put(folder, destination)
    return complete


@contextmanager
def _temporary_sibling(destination: Path) -> Iterator[Path]:
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder = temporary_sibling(destination)
    except OSError as error:
        raise unusable(destination, error) from error
    try:
        # It is made private; a checkpoint is readable like any other folder of the user.
        folder.chmod(0o777 & ~_umask())
        yield folder
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFullError(f"The disk filled up while writing '{destination}'.") from error
        raise
    finally:
        # After the rename there is nothing left to remove.
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def unique_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state dictionary with tied tensors under the first of their names only."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    unique: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if key not in seen:
            seen.add(key)
            unique[name] = tensor
    return unique


def _named_as_in(source: ModelSource, model: PreTrainedModel) -> dict[str, Tensor]:
    """The tensors of `model` under the names of the source's files; in memory some are called otherwise."""
    tensors: dict[str, Tensor] = revert_weight_conversion(model, unique_tensors(model))
    outer = f"{model.base_model_prefix}."
    if source.form == "gguf" or any(name.startswith(outer) for name in check_weights(source.path)):
        return tensors
    # Some repositories leave out the outer module: h.3 for transformer.h.3.
    return {name.removeprefix(outer): tensor for name, tensor in tensors.items()}


def _write_weights(tensors: Mapping[str, Tensor], folder: Path) -> None:
    split = split_torch_state_dict_into_shards(dict(tensors), max_shard_size=SHARD_SIZE)
    for filename, names in split.filename_to_tensors.items():
        # One shard at a time in host memory, whatever the size of the model.
        shard = {name: tensors[name].contiguous().cpu() for name in names}
        _save_shard(shard, folder / filename)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _save_shard(shard: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(shard, path, metadata={"format": "pt"})
    except SafetensorError as error:
        # It says nothing by type. What is written so far still lies there, so a full disk shows.
        size_bytes = sum(tensor.nbytes for tensor in shard.values())
        if shutil.disk_usage(path.parent).free < size_bytes:
            raise DiskFullError(f"The disk filled up while writing {size_bytes} bytes.") from error
        raise OutputUnusableError(f"'{path.name}' could not be written: {error}.") from error


def _write_config(model: PreTrainedModel, folder: Path) -> None:
    (folder / "config.json").write_text(model.config.to_json_string(use_diff=True), encoding="utf-8")
    if isinstance(model.config, modeling_ghosted.GhostedConfigMixin):
        code = Path(modeling_ghosted.__file__)
        shutil.copyfile(code, folder / code.name)


def _entries(folder: Path) -> dict[str, FileEntry]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_entry(path) for path in files}


def _sync(folder: Path) -> None:
    """Bytes first, then the name: a power cut must not leave a renamed folder of empty files."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
