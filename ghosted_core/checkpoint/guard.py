"""Checks on a stranger's model folder, made before any weight is read or transformers sees it."""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghosted_core.checkpoint.safetensors_header import read_header
from ghosted_core.checkpoint.strict_json import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    read_json_object,
    walk_items,
)
from ghosted_core.errors import CorruptModelError, UnsafeModelError, UnsupportedModelError

MANIFEST_NAME = "ghosted.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
# Each of these makes some loader fetch or run code, whatever the caller of it said.
CODE_KEYS = frozenset({"auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"})
# A value here may name a kernel repository, which transformers would download and run.
KERNEL_KEYS = re.compile(r"^_?(attn|experts|attention)_implementation(_internal)?$")
# Many honest repositories carry their maker's cache path here; no loader ever opened it.
INERT_PATH_KEY = "special_tokens_map_file"
STOCK_KERNELS = frozenset(
    {"eager", "sdpa", "flash_attention_2", "flex_attention", "grouped_mm", "batched_mm"}
)
BARE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")
ARCHITECTURE = re.compile(r"^[A-Za-z0-9]{1,80}(?:ForCausalLM|LMHeadModel|ForConditionalGeneration)$")
BOUNDS: Mapping[str, int] = {
    "num_hidden_layers": 1_024,
    "hidden_size": 131_072,
    "head_dim": 16_384,
    "intermediate_size": 2_097_152,
    "vocab_size": 4_194_304,
    "num_attention_heads": 4_096,
    "num_key_value_heads": 4_096,
    "max_position_embeddings": 134_217_728,
}


@dataclass(frozen=True)
class CheckedDirectory:
    """A model folder that passed: its raw config, and the shard that holds each tensor."""

    config: dict[str, Any]
    weight_map: Mapping[str, str]

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Names of the safetensors files that are read, in order."""
        return tuple(sorted(set(self.weight_map.values())))


def check_directory(folder: Path, *, supported: Iterable[str] | None = None) -> CheckedDirectory:
    """Nothing in the folder can run code, point outside it or contradict itself where we read it.

    `supported` lists the model types that are let through; None lets every stock type through.

    Raises:
        UnsafeModelError: code, pickles, or names and links that leave the folder.
        UnsupportedModelError: an architecture, quantisation or adapter that cannot be pruned here.
        CorruptModelError: files missing, malformed or contradicting each other.
    """
    check_links(folder)
    config = check_small_files(folder, supported=supported)
    return CheckedDirectory(config=config, weight_map=check_weights(folder))


def check_small_files(folder: Path, *, supported: Iterable[str] | None = None) -> dict[str, Any]:
    """The raw config.json; it and the JSON files beside it pass. Needs no weights yet."""
    _refuse_special_folders(folder)
    config = read_json_object(folder / "config.json", max_bytes=MAX_CONFIG_BYTES)
    _check_family(config, supported)
    _check_bounds(config)
    for path in sorted(folder.glob("*config.json")):
        _refuse_code(read_json_object(path, max_bytes=16 * MAX_CONFIG_BYTES), path.name)
    return config


def check_patched_configs(folder: Path) -> None:
    """The configurations of a checkpoint of ours make no loader of ours run or fetch anything.

    Raises:
        UnsafeModelError: they name code, kernels or files from elsewhere.
        CorruptModelError: they are not JSON.
    """
    if (folder / "adapter_config.json").exists():
        raise UnsafeModelError("The folder names an adapter, for whose base model a loader would look.")
    for path in sorted(folder.glob("*config.json")):
        config = read_json_object(path, max_bytes=16 * MAX_CONFIG_BYTES)
        if path.name == "config.json":
            # Its own code is for those who load with trust_remote_code; ours never reads this key.
            config.pop("auto_map", None)
        _refuse_code(config, path.name)


def _refuse_special_folders(folder: Path) -> None:
    if (folder / MANIFEST_NAME).exists():
        raise UnsupportedModelError(
            "This is an already repaired checkpoint; compressing one again is not supported yet.",
            advice="Start from the model that it was made of.",
        )
    if (folder / "adapter_config.json").exists():
        raise UnsupportedModelError(
            "The folder holds an adapter, not a whole model.", advice="Merge the adapter into its base first."
        )
    if (folder / "custom_generate").exists():
        raise UnsafeModelError("The folder brings its own generation code.")


def _check_family(config: Mapping[str, Any], supported: Iterable[str] | None) -> None:
    if any(config.get(key) is not None for key in ("quantization_config", "compression_config")):
        raise UnsupportedModelError(
            "The model is quantised, and its weights cannot be repaired in that form.",
            advice="Use the unquantised model it was made of, and quantise the result.",
        )
    model_type, architectures = config.get("model_type"), config.get("architectures")
    allowed = None if supported is None else sorted(supported)
    if not isinstance(model_type, str) or (allowed is not None and model_type not in allowed):
        listed = "" if allowed is None else f" Supported: {', '.join(allowed)}."
        raise UnsupportedModelError(f"Model type {str(model_type)[:80]!r} is not supported.{listed}")
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise UnsupportedModelError("config.json does not name exactly one architecture.")
    if not isinstance(architectures[0], str) or not ARCHITECTURE.fullmatch(architectures[0]):
        raise UnsupportedModelError(
            f"Architecture {str(architectures[0])[:80]!r} is not a causal language model of transformers."
        )


def _check_bounds(config: Mapping[str, Any]) -> None:
    for key, value in walk_items(config):
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise UnsafeModelError(f"config.json states an integer beyond 64 bits in '{key[:80]}'.")
        if key in BOUNDS and value is not None and not _within(value, BOUNDS[key]):
            raise UnsafeModelError(f"config.json states {key} = {value!r:.40}, not 1 to {BOUNDS[key]}.")


def _within(value: Any, largest: int) -> bool:
    # A boolean is an int to isinstance, and a list or text is no count at all.
    return type(value) is int and 1 <= value <= largest


def _refuse_code(document: Mapping[str, Any], name: str) -> None:
    for key, value in walk_items(document):
        if key in CODE_KEYS:
            raise UnsafeModelError(
                f"{name} holds the key '{key}', which makes loaders run the repository's code."
            )
        if KERNEL_KEYS.fullmatch(key) and not _is_stock_kernel(value):
            raise UnsafeModelError(f"{name} asks in '{key}' for a kernel that is not part of transformers.")
        # `transformers_weights` renames the weights file, `*_file` those of the tokenizer.
        is_path = key == "transformers_weights" or (key.endswith("_file") and key != INERT_PATH_KEY)
        if is_path and isinstance(value, str) and not BARE_NAME.fullmatch(value):
            raise UnsafeModelError(f"{name} points outside its folder in '{key[:80]}'.")
        if key == "transformers_weights" and value not in {None, SINGLE_FILE, INDEX_FILE}:
            raise UnsafeModelError(f"{name} names a weights file of its own.")


def _is_stock_kernel(value: Any) -> bool:
    names = value.values() if isinstance(value, dict) else [value]
    return all(name is None or (isinstance(name, str) and name in STOCK_KERNELS) for name in names)


def check_links(folder: Path) -> None:
    """Every entry of the folder is a regular file or folder that lies in it.

    The Hub's cache keeps a snapshot as links into the `blobs` folder of the same repository; those
    are let through.

    Raises:
        CorruptModelError: there is no such folder.
        UnsafeModelError: a link that leaves it, or a device, pipe or socket.
    """
    if not folder.is_dir():
        raise CorruptModelError("The model folder is not a folder.")
    roots = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":
        roots.append(folder.resolve().parent.parent / "blobs")
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _check_entry(Path(parent) / name, roots)


def _check_entry(path: Path, roots: Iterable[Path]) -> None:
    try:
        target = path.resolve(strict=True)
        mode = target.stat().st_mode
    except (OSError, RuntimeError) as error:
        raise UnsafeModelError(f"{path.name} is a link that leads nowhere.") from error
    if not any(target.is_relative_to(root) for root in roots):
        raise UnsafeModelError(f"{path.name} is a link that leaves the model folder.")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UnsafeModelError(f"{path.name} is neither a file nor a folder.")


def check_weights(folder: Path) -> dict[str, str]:
    """Shard name per tensor; every shard is there and sound, and holds exactly its tensors."""
    # transformers prefers the single file where both exist. The index is then not read.
    if (folder / SINGLE_FILE).exists():
        return dict.fromkeys(_checked_header(folder, SINGLE_FILE), SINGLE_FILE)
    if not (folder / INDEX_FILE).exists():
        raise _no_weights(folder)
    weight_map = read_weight_map(folder / INDEX_FILE)
    for shard in sorted(set(weight_map.values())):
        expected = {name for name, holder in weight_map.items() if holder == shard}
        if set(_checked_header(folder, shard)) != expected:
            raise CorruptModelError(f"The index and {shard} name different tensors.")
    return weight_map


def _checked_header(folder: Path, name: str) -> list[str]:
    if not (folder / name).is_file():
        raise CorruptModelError(f"{name} is missing.")
    return list(read_header(folder / name))


def _no_weights(folder: Path) -> Exception:
    if any(path.suffix in PICKLE_SUFFIXES for path in folder.iterdir()):
        return UnsafeModelError("The weights exist only as pickles, which run code when they are read.")
    return CorruptModelError(f"The folder holds neither {SINGLE_FILE} nor {INDEX_FILE}.")


def read_weight_map(index: Path) -> dict[str, str]:
    """The index's shard per tensor, every shard a bare safetensors name.

    Raises:
        UnsafeModelError: a shard name that could leave the folder or is no safetensors file.
        CorruptModelError: no such table, or an empty one.
    """
    weight_map = read_json_object(index, max_bytes=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptModelError(f"{index.name} has no table of weights.")
    for shard in weight_map.values():
        if not isinstance(shard, str) or not BARE_NAME.fullmatch(shard) or not shard.endswith(".safetensors"):
            raise UnsafeModelError(f"{index.name} names a shard that is not a bare safetensors file name.")
    # Two spellings of one file on a disk that ignores case would be read as one.
    shards = set(weight_map.values())
    if len({shard.lower() for shard in shards}) != len(shards):
        raise UnsafeModelError(f"{index.name} names shards that differ only in case.")
    return weight_map
