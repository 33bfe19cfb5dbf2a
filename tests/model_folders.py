"""Model folders made on the spot, well-formed or hostile, without torch."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TINY_CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 64,
}


def safetensors_bytes(header: Any, data: bytes) -> bytes:
    """A safetensors file with that header, true or not, and that data."""
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def one_tensor(name: str = "weight") -> bytes:
    """A sound safetensors file that holds one tensor of two floats."""
    return safetensors_bytes({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))


def tiny_files() -> dict[str, bytes]:
    """A sound folder: config and one weights file."""
    return {"config.json": json.dumps(TINY_CONFIG).encode(), "model.safetensors": one_tensor()}


def sharded_files() -> dict[str, bytes]:
    """A sound folder with two shards and their index."""
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    return {
        "config.json": json.dumps(TINY_CONFIG).encode(),
        "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": shards}).encode(),
        **{shard: one_tensor(name) for name, shard in shards.items()},
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """The folder, with exactly these files added."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
