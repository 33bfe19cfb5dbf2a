from uuid import UUID, uuid4

import pytest

from services.db.models import ApiKey
from services.db.sessions import Database
from services.errors import JobFinishedError, JobNotFoundError
from services.jobs import attempts, listing, repository
from services.jobs.listing import Filters
from services.jobs.repository import Viewer
from services.jobs.states import JobState
from tests.integration.services.helpers import EVERYONE, claim, event_types, read, running, submit


def _owner(database: Database, prefix: str) -> UUID:
    with database.write() as session:
        key = ApiKey(name=prefix, prefix=prefix, digest="0" * 64)
        session.add(key)
        session.flush()
        return key.id


def test_a_new_job_is_queued(database: Database) -> None:
    """A job begins in the queue with one event, before any attempt."""
    job_id = submit(database)
    job = read(database, job_id)
    assert (job.state, job.attempt, job.event_count) == (JobState.QUEUED, 0, 1)
    assert event_types(database, job_id) == ["submitted"]


def test_jobs_of_others_are_not_found(database: Database) -> None:
    """A foreign id and an unknown id give the same error."""
    mine, theirs = _owner(database, "mine"), _owner(database, "theirs")
    job_id = submit(database, theirs)
    with database.read() as session:
        assert repository.get(session, Viewer(theirs), job_id).id == job_id
        for wanted in (job_id, uuid4()):
            with pytest.raises(JobNotFoundError):
                repository.get(session, Viewer(mine), wanted)
        assert not listing.list_newest(session, Viewer(mine), limit=10)


def test_pages_hold_every_job_once_newest_first(database: Database) -> None:
    """Following the cursor visits all jobs in order, without a double."""
    made = [submit(database) for _ in range(5)]
    seen: list[UUID] = []
    with database.read() as session:
        while page := listing.list_newest(session, EVERYONE, limit=2, after=seen[-1] if seen else None):
            seen += [job.id for job in page]
    assert seen == sorted(made, reverse=True)


def test_jobs_can_be_listed_by_state(database: Database) -> None:
    """Only jobs of the wanted state are listed."""
    submit(database)
    fence = running(database)
    with database.read() as session:
        found = listing.list_newest(session, EVERYONE, limit=10, filters=Filters(state=JobState.RUNNING))
    assert [job.id for job in found] == [fence.job_id]


def test_queue_positions_count_those_before(database: Database) -> None:
    """The next job to begin is at 0, and running jobs have no place."""
    first, second, third = (submit(database) for _ in range(3))
    claim(database, first)
    with database.read() as session:
        jobs = [repository.get(session, EVERYONE, job_id) for job_id in (first, second, third)]
        assert listing.queue_positions(session, jobs) == {second: 0, third: 1}


def test_places_are_counted_so_far(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limit exactly, from there on as the limit, whichever of the jobs are asked for."""
    monkeypatch.setattr(listing, "LONGEST_COUNTED_QUEUE", 2)
    ids = [submit(database) for _ in range(4)]
    with database.read() as session:
        jobs = [repository.get(session, EVERYONE, job_id) for job_id in ids]
        for asked in (jobs, jobs[:1], jobs[1:2], jobs[1:3], jobs[2:]):
            expected = {job.id: min(ids.index(job.id), 2) for job in asked}
            assert listing.queue_positions(session, asked) == expected


def test_a_queued_job_is_cancelled_at_once(database: Database) -> None:
    """Nobody can claim it afterwards."""
    job_id = submit(database)
    with database.write() as session:
        assert repository.request_cancel(session, EVERYONE, job_id).state == JobState.CANCELLED
    with database.write() as session:
        assert attempts.claim(session, job_id, lease_seconds=60, worker="w") is None


def test_a_running_job_is_asked_to_stop_once(database: Database) -> None:
    """It stays running until its worker obeys; asking again adds nothing."""
    fence = running(database)
    for _ in range(2):
        with database.write() as session:
            assert repository.request_cancel(session, EVERYONE, fence.job_id).state == JobState.RUNNING
    assert event_types(database, fence.job_id).count("cancel_requested") == 1


def test_an_ended_job_cannot_be_cancelled(database: Database) -> None:
    """Too late is an error, and changes nothing."""
    fence = running(database)
    with database.write() as session:
        attempts.finish_cancelled(session, fence)
    before = event_types(database, fence.job_id)
    with pytest.raises(JobFinishedError), database.write() as session:
        repository.request_cancel(session, EVERYONE, fence.job_id)
    assert event_types(database, fence.job_id) == before


def test_an_exception_undoes_the_transaction(database: Database) -> None:
    """A write session that raises leaves no trace."""
    fence = running(database)
    before = event_types(database, fence.job_id)

    def write_and_stumble() -> None:
        with database.write() as session:
            attempts.record_event(session, fence, "log", {})
            raise LookupError

    with pytest.raises(LookupError):
        write_and_stumble()
    assert event_types(database, fence.job_id) == before
