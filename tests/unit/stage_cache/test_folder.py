import os
from pathlib import Path

import pytest

from ghosted_core.stage_cache import FolderStageCache

KEYS = [letter * 64 for letter in "abcd"]


def put(cache: FolderStageCache, key: str, size: int = 10) -> None:
    cache.put(key, lambda path: path.write_bytes(bytes(size)) and None)


def test_what_is_put_is_got(tmp_path: Path) -> None:
    """Under its key, and only under its key; the folder is made when it is needed."""
    cache = FolderStageCache(tmp_path / "stages")
    assert cache.get(KEYS[0]) is None
    put(cache, KEYS[0], 3)
    found = cache.get(KEYS[0])
    assert found is not None
    assert found.read_bytes() == bytes(3)
    assert cache.get(KEYS[1]) is None


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    """No file of that key and no half file."""
    cache = FolderStageCache(tmp_path)

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        cache.put(KEYS[0], fail)
    assert list(tmp_path.iterdir()) == []


def test_the_entry_unused_for_longest_makes_room(tmp_path: Path) -> None:
    """Used means read or written."""
    cache = FolderStageCache(tmp_path, limit_bytes=25)
    for age, key in ((300, KEYS[0]), (200, KEYS[1])):
        put(cache, key)
        then = tmp_path.stat().st_mtime - age
        os.utime(tmp_path / f"{key}.safetensors", (then, then))
    assert cache.get(KEYS[0]) is not None
    put(cache, KEYS[2])
    assert cache.get(KEYS[0]) is not None
    assert cache.get(KEYS[1]) is None
    assert cache.get(KEYS[2]) is not None


def test_entries_and_half_files_of_long_ago_go(tmp_path: Path) -> None:
    """A month is kept."""
    cache = FolderStageCache(tmp_path)
    put(cache, KEYS[0])
    (tmp_path / f".{KEYS[3]}.safetensors.partial-1").touch()
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    put(cache, KEYS[1])
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEYS[1]}.safetensors"]
