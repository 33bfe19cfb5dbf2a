"""Folders for services that are gone afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.embedded import remove_stack


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A service's data folder, not there yet; whatever becomes of it is gone after the test."""
    folder = tmp_path / "data"
    yield folder
    remove_stack(folder)


@pytest.fixture
def other_data(tmp_path: Path) -> Iterator[Path]:
    """Another one."""
    folder = tmp_path / "other"
    yield folder
    remove_stack(folder)
