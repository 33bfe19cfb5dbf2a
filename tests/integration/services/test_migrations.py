import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import inspect

from services.db import migrate
from services.db.models import Base
from services.db.sessions import open_engine


def _tables(url: str) -> set[str]:
    engine = open_engine(url)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_upgrade_from_empty_makes_every_table(empty_url: str) -> None:
    """An empty database has all tables of the models after an upgrade."""
    migrate.upgrade(empty_url)
    assert _tables(empty_url) == {*Base.metadata.tables, "alembic_version"}


@pytest.mark.parametrize("revision", migrate.revisions())
def test_upgrade_from_each_revision_reaches_head(empty_url: str, revision: str) -> None:
    """A database at any released revision upgrades to a schema that the models agree with."""
    migrate.upgrade(empty_url, revision)
    migrate.upgrade(empty_url)
    migrate.check(empty_url)


def test_models_and_migrations_agree(migrated_url: str) -> None:
    """Alembic finds nothing that the models have and the migrations lack, or the other way round."""
    migrate.check(migrated_url)


def test_downgrade_leaves_nothing(empty_url: str) -> None:
    """Going back to the base removes all tables."""
    migrate.upgrade(empty_url)
    migrate.downgrade(empty_url, "base")
    assert _tables(empty_url) == {"alembic_version"}


def test_simultaneous_upgrades_follow_one_another(empty_url: str) -> None:
    """Two replicas that upgrade at once both come back without an error."""
    with ThreadPoolExecutor(3) as pool:
        for run in [pool.submit(migrate.upgrade, empty_url) for _ in range(3)]:
            run.result(timeout=60)
    assert "jobs" in _tables(empty_url)


def test_current_revision_is_known(migrated_url: str) -> None:
    """After an upgrade the database says that it is at the code's head."""
    engine = open_engine(migrated_url)
    with engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()
    engine.dispose()


def test_models_need_no_torch() -> None:
    """The worker's parent can use the repositories without loading torch."""
    code = "import sys, services.jobs.attempts, services.jobs.sweeping; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
