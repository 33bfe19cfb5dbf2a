"""The oldest and the newest PostgreSQL at hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.db import migrate
from services.db.sessions import open_database
from services.embedded import External, Stack, remove_stack
from services.embedded.programs import PostgresPrograms, Programs
from services.jobs import attempts
from services.jobs.states import JobState
from tests.integration.services.helpers import ARTIFACT, read, running

CANDIDATES = Programs.search().postgres


@pytest.mark.parametrize("programs", CANDIDATES, ids=lambda programs: f"postgres-{programs.major}")
def test_every_version_carries_a_job(stack: Stack, programs: PostgresPrograms, tmp_path: Path) -> None:
    """Migrations, models and the job's statements work on each version from 15 on."""
    folder = tmp_path / "data"
    others = External(redis_url=stack.redis_url, s3=stack.s3)
    chosen = replace(Programs.search(), postgres=(programs,))
    try:
        with Stack.start(folder, external=others, programs=chosen) as own:
            migrate.upgrade(own.database_url)
            migrate.check(own.database_url)
            database = open_database(own.database_url)
            fence = running(database)
            with database.write() as session:
                attempts.finish_succeeded(session, fence, ARTIFACT)
            assert read(database, fence.job_id).state == JobState.SUCCEEDED
            database.close()
    finally:
        remove_stack(folder)
