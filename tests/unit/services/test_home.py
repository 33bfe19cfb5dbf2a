import os
import time
from pathlib import Path

import pytest

from services.embedded import home
from services.embedded.home import PREFIX, RECORD, YOUNG_SECONDS, remove_orphans


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for databases outside their data folders, for this test alone."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.setattr(home, "ELSEWHERE", (place,))
    return place


def database(place: Path, name: str, *, age_seconds: float, data_folder: Path | None = None) -> Path:
    """A database folder of that age, which names its data folder, if any."""
    folder = place / f"{PREFIX}{name}"
    folder.mkdir()
    if data_folder is not None:
        (folder / "data_folder").write_text(str(data_folder))
    moment = time.time() - age_seconds
    os.utime(folder, (moment, moment))
    return folder


def test_a_start_in_progress_loses_nothing(elsewhere: Path, tmp_path: Path) -> None:
    """A folder that another start has just made, with or without its note, is left alone."""
    bare = database(elsewhere, "bare", age_seconds=1)
    noted = database(elsewhere, "noted", age_seconds=YOUNG_SECONDS / 2, data_folder=tmp_path / "data")
    remove_orphans()
    assert bare.is_dir()
    assert noted.is_dir()


def test_what_nobody_knows_any_more_is_removed(elsewhere: Path, tmp_path: Path) -> None:
    """Old folders go if their note, their data folder or its record is gone, or it names another."""
    other = tmp_path / "other"
    other.mkdir()
    (other / RECORD).write_text(str(tmp_path / "somewhere"))
    owners = {"bare": None, "gone": tmp_path / "gone", "other": other}
    folders = [
        database(elsewhere, name, age_seconds=2 * YOUNG_SECONDS, data_folder=owner)
        for name, owner in owners.items()
    ]
    remove_orphans()
    assert not any(folder.exists() for folder in folders)


def test_what_its_data_folder_knows_is_kept(elsewhere: Path, tmp_path: Path) -> None:
    """However old, a database that its data folder has a record of stays."""
    data = tmp_path / "data"
    data.mkdir()
    folder = database(elsewhere, "known", age_seconds=1e6, data_folder=data)
    (data / RECORD).write_text(str(folder))
    remove_orphans()
    assert folder.is_dir()
