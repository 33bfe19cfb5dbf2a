import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the real model and text are kept: GHOSTED_TEST_CACHE, or a folder of this session."""
    named = os.environ.get("GHOSTED_TEST_CACHE")
    return Path(named) if named else tmp_path_factory.mktemp("real-cache")
