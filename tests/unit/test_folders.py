from collections.abc import Callable
from pathlib import Path

import pytest

from ghosted_core.errors import GhostedError, OutputExistsError, OutputUnusableError
from ghosted_core.folders import put, require_free, temporary_sibling


def test_what_is_free_stays_untouched(tmp_path: Path) -> None:
    """A missing folder, one below missing ones, and an empty one pass; the probe leaves no trace."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "missing/new", "empty", "new 'q' \N{SNOWMAN}"):
        require_free(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def _occupied(folder: Path) -> Path:
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    return folder / "full"


def _file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file"


def _link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nowhere")
    return folder / "link"


def _below_file(folder: Path) -> Path:
    return _file(folder) / "new"


def _long_name(folder: Path) -> Path:
    # Free itself, but the temporary sibling's name is longer.
    return folder / ("a" * 250)


def _no_disk(folder: Path) -> Path:
    return Path("/proc") / folder.name


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (_occupied, OutputExistsError),
        (_file, OutputExistsError),
        (_link, OutputExistsError),
        (_below_file, OutputUnusableError),
        (_long_name, OutputUnusableError),
        (_no_disk, OutputUnusableError),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    tmp_path: Path, make: Callable[[Path], Path], error: type[GhostedError]
) -> None:
    """With an error of ours, before any work."""
    with pytest.raises(error):
        require_free(make(tmp_path))


def test_the_current_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even empty: whoever stands in it would be left in a folder that is gone."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputExistsError, match="current folder"):
        require_free(Path())


def test_of_two_writers_one_wins_whole(tmp_path: Path) -> None:
    """The second is refused, and what the first put there is as it was."""
    destination = tmp_path / "out"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    destination.mkdir()
    put(tmp_path / "first", destination)
    with pytest.raises(OutputExistsError):
        put(tmp_path / "second", destination)
    assert (destination / "file").read_text() == "first"


def test_a_sibling_is_private(tmp_path: Path) -> None:
    """It lies beside the destination, hidden, for its owner alone."""
    sibling = temporary_sibling(tmp_path / "out")
    assert sibling.parent == tmp_path
    assert sibling.name.startswith(".out.")
    assert sibling.stat().st_mode & 0o777 == 0o700
