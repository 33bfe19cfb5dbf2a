import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ghosted_core.checkpoint.guard import check_directory
from ghosted_core.errors import CorruptModelError, SourceError, UnsafeModelError, UnsupportedModelError
from tests.model_folders import TINY_CONFIG, one_tensor, sharded_files, tiny_files, write_files

INDEX = "model.safetensors.index.json"


def config_bytes(**changes: Any) -> bytes:
    """The tiny config with some fields changed."""
    return json.dumps({**TINY_CONFIG, **changes}).encode()


def index_bytes(weight_map: Any) -> bytes:
    """An index with that table."""
    return json.dumps({"weight_map": weight_map}).encode()


def refused(folder: Path, files: Mapping[str, bytes], error: type[SourceError]) -> str:
    """The message with which the folder of these files is refused."""
    with pytest.raises(error) as caught:
        check_directory(write_files(folder, files), supported=["llama"])
    assert type(caught.value) is error
    return caught.value.message


@pytest.mark.parametrize("files", [tiny_files(), sharded_files()], ids=["single", "sharded"])
def test_a_sound_folder_passes(tmp_path: Path, files: dict[str, bytes]) -> None:
    """The raw config comes back, and with it exactly the weight files that are there."""
    checked = check_directory(write_files(tmp_path, files), supported=["llama"])
    assert checked.config == TINY_CONFIG
    assert set(checked.weight_files) == {name for name in files if name.endswith(".safetensors")}


@pytest.mark.parametrize("key", ["auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_code_keys_are_refused_at_any_depth(tmp_path: Path, key: str, name: str) -> None:
    """A key that makes loaders run code is found inside lists and nested objects."""
    hostile = config_bytes(extra=[{"deep": {key: {"AutoModel": "evil.Model"}}}])
    assert key in refused(tmp_path, {**tiny_files(), name: hostile}, UnsafeModelError)


@pytest.mark.parametrize("value", ["someone/kernels", {"": "someone/kernels"}, {"text_config": 3}])
def test_foreign_kernels_are_refused(tmp_path: Path, value: Any) -> None:
    """An attention implementation that transformers would download is refused."""
    hostile = config_bytes(text_config={"_attn_implementation": value})
    refused(tmp_path, {**tiny_files(), "config.json": hostile}, UnsafeModelError)


@pytest.mark.parametrize("value", [None, "sdpa", {"": "eager"}])
def test_stock_kernels_pass(tmp_path: Path, value: Any) -> None:
    """Implementations that are part of transformers pass."""
    files = {**tiny_files(), "config.json": config_bytes(_attn_implementation=value)}
    check_directory(write_files(tmp_path, files), supported=["llama"])


@pytest.mark.parametrize(
    ("name", "key"),
    [("tokenizer_config.json", "vocab_file"), ("config.json", "transformers_weights")],
)
@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/b.txt"])
def test_paths_in_settings_are_refused(tmp_path: Path, name: str, key: str, path: str) -> None:
    """No setting may name a file outside the folder."""
    files = {**tiny_files(), name: config_bytes(**{key: path})}
    refused(tmp_path, files, UnsafeModelError)


def test_a_path_that_nobody_opens_passes(tmp_path: Path) -> None:
    """Older tokenizers carry their maker's cache path in a field without effect."""
    settings = json.dumps({"special_tokens_map_file": "/home/me/.cache/x", "tokenizer_file": None}).encode()
    check_directory(write_files(tmp_path, {**tiny_files(), "tokenizer_config.json": settings}))


def test_a_weights_file_of_its_own_is_refused(tmp_path: Path) -> None:
    """Weights under another name would be read without having been checked."""
    files = {**tiny_files(), "config.json": config_bytes(transformers_weights="other.safetensors")}
    refused(tmp_path, {**files, "other.safetensors": one_tensor()}, UnsafeModelError)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "unheard_of"},
        {"model_type": None},
        {"model_type": ["llama"]},
        {"architectures": None},
        {"architectures": []},
        {"architectures": ["LlamaForCausalLM", "Other"]},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": ["../evil.LlamaForCausalLM"]},
        {"architectures": [7]},
        {"quantization_config": {"quant_method": "gptq"}},
        {"compression_config": {"format": "packed"}},
    ],
    ids=str,
)
def test_unknown_kinds_are_unsupported(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Only known model types, one causal architecture, unquantised."""
    refused(tmp_path, {**tiny_files(), "config.json": config_bytes(**changes)}, UnsupportedModelError)


def test_without_a_list_any_stock_type_passes(tmp_path: Path) -> None:
    """The allow-list is the caller's; the other checks need none."""
    files = {**tiny_files(), "config.json": config_bytes(model_type="qwen9")}
    assert check_directory(write_files(tmp_path, files)).config["model_type"] == "qwen9"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", 0),
        ("hidden_size", -8),
        ("hidden_size", "8"),
        ("hidden_size", True),
        ("hidden_size", 8.0),
        ("vocab_size", 2**40),
        ("num_attention_heads", [2]),
        ("intermediate_size", 10**9),
        ("max_position_embeddings", 10**12),
        ("anything", 2**63),
        ("anything", -(10**30)),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_senseless_sizes_are_refused(tmp_path: Path, key: str, value: Any, nested: bool) -> None:  # noqa: FBT001
    """Sizes are integers within bounds, also in nested configs, before anything is allocated."""
    changes = {"text_config": {key: value}} if nested else {key: value}
    refused(tmp_path, {**tiny_files(), "config.json": config_bytes(**changes)}, UnsafeModelError)


@pytest.mark.parametrize(
    "text",
    [
        '{"rope_theta": NaN}',
        '{"rope_theta": Infinity}',
        '{"rope_theta": 1e999}',
        '{"vocab_size": ' + "9" * 10_000 + "}",
        '{"model_type": "llama", "model_type": "other"}',
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": "' + "x" * (1 << 20) + '"}',
    ],
    ids=["nan", "infinity", "overflow", "digits", "twice", "depth", "size"],
)
def test_hostile_json_is_refused(tmp_path: Path, text: str) -> None:
    """JSON that parsers disagree on, or choke on, goes no further."""
    refused(tmp_path, {**tiny_files(), "config.json": text.encode()}, UnsafeModelError)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"text"', b"\xff\xfe{}"])
def test_broken_json_is_corrupt(tmp_path: Path, content: bytes) -> None:
    """A config that is no JSON object is reported as broken, not as an attack."""
    refused(tmp_path, {**tiny_files(), "config.json": content}, CorruptModelError)


def test_a_tokenizer_without_limit_passes(tmp_path: Path) -> None:
    """Many tokenizers write 10**30 for a length without limit; that is no attack."""
    files = {
        **tiny_files(),
        "tokenizer_config.json": b'{"model_max_length": 1000000000000000019884624838656}',
    }
    check_directory(write_files(tmp_path, files), supported=["llama"])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "last.ckpt"])
def test_only_pickles_are_refused(tmp_path: Path, name: str) -> None:
    """A folder whose weights exist only as pickles is unsafe."""
    files = {"config.json": config_bytes(), name: b"\x80\x04."}
    assert "pickles" in refused(tmp_path, files, UnsafeModelError)


def test_pickles_beside_safetensors_are_ignored(tmp_path: Path) -> None:
    """A pickle that nobody reads does no harm."""
    check_directory(write_files(tmp_path, {**tiny_files(), "pytorch_model.bin": b"\x80\x04."}))


def test_no_weights_are_corrupt(tmp_path: Path) -> None:
    """A folder without weights is incomplete."""
    refused(tmp_path, {"config.json": config_bytes()}, CorruptModelError)


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/model.safetensors",
        "sub/model.safetensors",
        "..",
        "model.bin",
        ".",
        3,
        "",
    ],
)
def test_index_names_are_bare(tmp_path: Path, shard: Any) -> None:
    """A shard is a bare safetensors file name and nothing else."""
    refused(tmp_path, {"config.json": config_bytes(), INDEX: index_bytes({"a": shard})}, UnsafeModelError)


def test_index_names_do_not_differ_in_case_only(tmp_path: Path) -> None:
    """Where the disk ignores case, two such names are one file."""
    weight_map = {"a": "model-1.safetensors", "b": "MODEL-1.safetensors"}
    refused(tmp_path, {"config.json": config_bytes(), INDEX: index_bytes(weight_map)}, UnsafeModelError)


@pytest.mark.parametrize("weight_map", [None, {}, ["a"]])
def test_an_index_needs_a_table(tmp_path: Path, weight_map: Any) -> None:
    """An index without a table of weights is broken."""
    refused(tmp_path, {"config.json": config_bytes(), INDEX: index_bytes(weight_map)}, CorruptModelError)


def test_a_missing_shard_is_corrupt(tmp_path: Path) -> None:
    """Every shard of the index is there."""
    files = sharded_files()
    del files["model-00002-of-00002.safetensors"]
    assert "model-00002-of-00002" in refused(tmp_path, files, CorruptModelError)


@pytest.mark.parametrize("tensor", ["b", "c"])
def test_shards_hold_what_the_index_says(tmp_path: Path, tensor: str) -> None:
    """A tensor in another shard than stated, or in two, is refused."""
    files = {**sharded_files(), "model-00001-of-00002.safetensors": one_tensor(tensor)}
    refused(tmp_path, files, CorruptModelError)


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    """A link to a file elsewhere would carry that file into the result."""
    secret = write_files(tmp_path / "elsewhere", {"secret": b"{}"}) / "secret"
    folder = write_files(tmp_path / "model", tiny_files())
    (folder / "LICENSE").symlink_to(secret)
    refused(folder, {}, UnsafeModelError)


def test_linked_folders_are_refused(tmp_path: Path) -> None:
    """The same for a folder of chat templates."""
    elsewhere = write_files(tmp_path / "elsewhere", {"a.jinja": b""})
    folder = write_files(tmp_path / "model", tiny_files())
    (folder / "additional_chat_templates").symlink_to(elsewhere, target_is_directory=True)
    refused(folder, {}, UnsafeModelError)


def test_dangling_links_and_loops_are_refused(tmp_path: Path) -> None:
    """A link that leads nowhere is refused rather than followed."""
    folder = write_files(tmp_path / "model", tiny_files())
    (folder / "loop").symlink_to(folder / "loop")
    refused(folder, {}, UnsafeModelError)


def test_pipes_are_refused(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever."""
    folder = write_files(tmp_path / "model", tiny_files())
    os.mkfifo(folder / "generation_config.json")
    refused(folder, {}, UnsafeModelError)


def test_the_cache_layout_of_the_hub_passes(tmp_path: Path) -> None:
    """Links into the blobs of the same repository are how its cache keeps files."""
    blobs = write_files(tmp_path / "models--o--n" / "blobs", tiny_files())
    snapshot = tmp_path / "models--o--n" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    assert check_directory(snapshot).config == TINY_CONFIG


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("ghosted.json", UnsupportedModelError),
        ("adapter_config.json", UnsupportedModelError),
        ("custom_generate/generate.py", UnsafeModelError),
    ],
)
def test_special_folders_are_refused(tmp_path: Path, name: str, error: type[SourceError]) -> None:
    """Our own checkpoints, adapters and generation code each say why they cannot be used."""
    refused(tmp_path, {**tiny_files(), name: b"{}"}, error)


def test_code_beside_the_model_is_harmless(tmp_path: Path) -> None:
    """A .py file that no setting refers to is never imported, so it does not matter."""
    check_directory(write_files(tmp_path, {**tiny_files(), "modeling.py": b"raise SystemExit"}))
