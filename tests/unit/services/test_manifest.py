from uuid import uuid4

import pytest
from pydantic import ValidationError

from services.artifacts.manifest import (
    Manifest,
    ManifestFile,
    attempt_prefix,
    check_relative_path,
    job_prefix,
)

SHA = "0" * 64


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../a",
        "a/../b",
        "/a",
        "a//b",
        "./a",
        "a/.",
        "a/",
        "a\\b",
        "c:a",
        "a\0b",
        "a\nb",
        'a"b',
        "a*",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    """Only plain relative paths name files of an artifact."""
    with pytest.raises(ValueError, match="plain relative path"):
        check_relative_path(path)


@pytest.mark.parametrize(
    "path", ["a", "a/b.json", "model-00001-of-00002.safetensors", "a..b", ".gitattributes"]
)
def test_plain_paths_pass(path: str) -> None:
    """A plain relative path is itself."""
    assert check_relative_path(path) == path


def test_a_manifest_lists_each_path_once() -> None:
    """Two files of one name cannot both be there."""
    file = ManifestFile(path="a", size_bytes=3, sha256=SHA)
    assert Manifest(files=(file,)).total_bytes == 3
    with pytest.raises(ValidationError, match="more than once"):
        Manifest(files=(file, file))


def test_attempts_do_not_share_a_prefix() -> None:
    """No attempt's prefix is the beginning of another's, so deleting one leaves the others."""
    job = uuid4()
    prefixes = [attempt_prefix(job, attempt) for attempt in (1, 2, 10, 11, 100)]
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and b.startswith(a)]
    assert all(prefix.startswith(job_prefix(job)) for prefix in prefixes)
