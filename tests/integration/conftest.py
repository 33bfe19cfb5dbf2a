"""The real parts, started once for the whole run."""

from collections.abc import Iterator

import pytest

from services.embedded import Stack, remove_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """PostgreSQL, Redis and S3 on loopback; what one test leaves in them, the next one sees."""
    folder = tmp_path_factory.mktemp("stack") / "data"
    with Stack.start(folder) as running:
        yield running
    remove_stack(folder)
