"""How PostgreSQL finds what pollers ask for, among 100,000 jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Select, delete, event, select, text

from services.dashboard import job_queries, system_queries
from services.db.models import ApiKey, Base, Job
from services.db.sessions import Database
from services.jobs import listing, repository
from services.jobs.feed import looking_at
from services.jobs.listing import Filters
from services.jobs.showing import show_one
from services.jobs.states import JobState
from services.jobs.viewer import Viewer
from services.workers.repository import list_workers, running_on
from tests.integration.services.crowd import fill

JOBS = 100_000
# A page of 20 and one more; what else is read is waste.
PAGE = 21


@pytest.fixture(scope="module")
def crowded(opened: Database) -> Iterator[tuple[Database, UUID]]:
    """100,000 jobs of one key, and the key."""
    names = ", ".join(f'"{table.name}"' for table in Base.metadata.sorted_tables)
    with opened.write() as session:
        session.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
        key = ApiKey(name="crowd", prefix="crowd", digest="0" * 64)
        session.add(key)
        session.flush()
        owner_id = key.id
    fill(opened, owner_id, JOBS)
    yield opened, owner_id
    with opened.write() as session:
        session.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@contextmanager
def heard(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent meanwhile, with their parameters."""
    caught: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        caught.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield caught
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


def sent_for(database: Database, query: Any) -> tuple[str, Any]:
    """The statement of `query` with its parameters, as they go to the server."""
    with heard(database) as caught, database.engine.connect() as connection:
        connection.execute(query)
        connection.rollback()
    return caught[-1]


def explained(database: Database, query: Any) -> list[dict[str, Any]]:
    """The nodes of the plan, with what they really did."""
    statement, parameters = sent_for(database, query)
    with database.engine.connect() as connection:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        (answer,) = connection.exec_driver_sql(explain, parameters).one()
        connection.rollback()
    return list(nodes(answer[0]["Plan"]))


def check(database: Database, query: Any, *, most_rows: int) -> None:
    """No table is read in full, and no part of the plan handles more than `most_rows`."""
    for node in explained(database, query):
        assert node["Node Type"] != "Seq Scan", node
        read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        assert read <= most_rows, node


def newest_id(database: Database, state: JobState) -> UUID:
    with database.read() as session:
        return session.scalars(
            select(Job.id).where(Job.state == state).order_by(Job.id.desc()).limit(1)
        ).one()


HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)
LONG_AGO = datetime.now(UTC) - timedelta(hours=20)
SLACK_ROWS = int(listing.CLOCK_SLACK.total_seconds()) + PAGE
FILTERS = {
    "none": (Filters(), PAGE),
    "common state": (Filters(state=JobState.SUCCEEDED), PAGE + 30),
    # By state and id, or by all that run and a sort.
    "rare state": (Filters(state=JobState.RUNNING), JOBS // 100),
    "common model": (Filters(model="owner/tiny"), PAGE + 10),
    "rare model": (Filters(model="owner/rare"), PAGE),
    "no such model": (Filters(model="owner/none"), PAGE),
    "label": (Filters(labels={"team": "rare"}), JOBS // 100),
    "no such label": (Filters(labels={"team": "none"}), JOBS // 100),
    "from": (Filters(created_from=HOUR_AGO), PAGE),
    "before": (Filters(created_before=LONG_AGO), SLACK_ROWS),
    "span": (
        Filters(created_from=LONG_AGO, created_before=LONG_AGO + timedelta(minutes=1)),
        2 * SLACK_ROWS + 60,
    ),
    "state and model": (Filters(state=JobState.FAILED, model="owner/tiny"), JOBS // 100),
}


@pytest.mark.parametrize("name", FILTERS)
def test_lists_read_little_more_than_they_show(crowded: tuple[Database, UUID], name: str) -> None:
    """Whatever the filter, a page costs a page."""
    database, owner_id = crowded
    filters, most = FILTERS[name]
    check(database, listing.newest(Viewer(owner_id), filters, limit=PAGE), most_rows=most)


@pytest.mark.parametrize("after", ["first", "deep"])
@pytest.mark.parametrize("known", [True, False], ids=["one key", "no authentication"])
def test_every_page_costs_the_same(crowded: tuple[Database, UUID], after: str, known: bool) -> None:  # noqa: FBT001
    """The cursor is a place in the index, however deep."""
    database, owner_id = crowded
    with database.read() as session:
        oldest = session.scalars(select(Job.id).order_by(Job.id).offset(100).limit(1)).one()
    cursor = oldest if after == "deep" else None
    query = listing.newest(Viewer(owner_id if known else None), Filters(), limit=PAGE, after=cursor)
    check(database, query, most_rows=PAGE)


def test_a_poll_reads_one_row(crowded: tuple[Database, UUID]) -> None:
    """By its id; that it is the viewer's is seen on the row."""
    database, owner_id = crowded
    job_id = newest_id(database, JobState.SUCCEEDED)
    check(database, select(Job).where(Job.id == job_id, Viewer(owner_id).sees()), most_rows=1)


def test_events_are_read_by_number(crowded: tuple[Database, UUID]) -> None:
    """Those of one job after a number, and no others."""
    database, _ = crowded
    job_id = newest_id(database, JobState.QUEUED)
    check(database, listing.events_after(job_id, after=0, limit=101), most_rows=1)


def test_a_place_in_the_queue_reads_the_front_of_it(crowded: tuple[Database, UUID]) -> None:
    """The jobs before it, of those that wait; of a long queue the first thousand."""
    database, _ = crowded
    waiting = 4 * JOBS // 1000
    check(database, listing.places([newest_id(database, JobState.QUEUED)]), most_rows=waiting)


def test_a_queue_of_any_length_is_counted_so_far(crowded: tuple[Database, UUID]) -> None:
    """With 50,000 jobs in the queue the last one's place costs a thousand rows."""
    database, _ = crowded
    queue = "UPDATE jobs SET state = 'queued', finished_at = NULL WHERE state = 'succeeded' AND id < :middle"
    with database.read() as session:
        middle = session.scalars(select(Job.id).order_by(Job.id).offset(JOBS // 2).limit(1)).one()
    last = newest_id(database, JobState.QUEUED)
    statement, parameters = sent_for(database, listing.places([last]))
    with database.engine.connect() as connection:
        connection.execute(text(queue), {"middle": middle})
        connection.execute(text("ANALYZE jobs"))
        (answer,) = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        ).one()
        connection.rollback()
    for node in nodes(answer[0]["Plan"]):
        assert node["Node Type"] != "Seq Scan", node
        assert node["Actual Rows"] <= listing.LONGEST_COUNTED_QUEUE, node
        # Further back than is counted: nothing is numbered.
        assert node["Node Type"] != "WindowAgg" or node["Actual Rows"] == 0, node


def test_what_workers_run_is_found_by_their_names(crowded: tuple[Database, UUID]) -> None:
    """Without a look at all that runs elsewhere."""
    database, _ = crowded
    with database.read() as session:
        seen = list_workers(session, lease_seconds=30)
    assert all(one.live and one.job is not None for one in seen)
    check(database, running_on([one.worker.id for one in seen]), most_rows=len(seen))


def test_all_that_is_asked_for_a_poll_and_a_look_uses_indexes(crowded: tuple[Database, UUID]) -> None:
    """Not only the queries that this file knows of: every statement that is really sent."""
    database, owner_id = crowded
    job_id = newest_id(database, JobState.RUNNING)
    with heard(database) as sent:
        with database.read() as session:
            for one in (job_id, newest_id(database, JobState.QUEUED)):
                show_one(session, repository.get(session, Viewer(owner_id), one), lease_seconds=30)
            listing.last_log_events(session, job_id, limit=10)
            listing.list_metrics(session, repository.get(session, Viewer(owner_id), job_id))
        looking_at(database, lease_seconds=30)({job_id: 0})
    for statement, parameters in sent:
        with database.engine.connect() as connection:
            (answer,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).one()
        big = [one for one in nodes(answer[0]["Plan"]) if one["Node Type"] == "Seq Scan"]
        # Tables without rows are read as they are; of workers there are never many.
        assert {one["Relation Name"] for one in big} <= {"job_metrics", "workers"}, statement


@pytest.mark.parametrize("known", [True, False], ids=["one key", "all keys"])
def test_the_system_page_reads_what_waits_runs_or_failed_lately(
    crowded: tuple[Database, UUID],
    known: bool,  # noqa: FBT001 - a case
) -> None:
    """By indexes, whatever else there is."""
    database, owner_id = crowded
    sees = Viewer(owner_id if known else None).sees()
    with heard(database) as sent, database.read() as session:
        found = system_queries.queue(session, sees)
        (failures,) = system_queries.failures(session, sees)
    assert (found.queued, found.running) == (4 * JOBS // 1000, 2 * JOBS // 1000)
    assert failures.code == "unsafe_model"
    assert failures.week == 10 * JOBS // 1000
    assert failures.day < failures.week
    for statement, parameters in sent:
        with database.engine.connect() as connection:
            (answer,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).one()
        assert all(one["Node Type"] != "Seq Scan" for one in nodes(answer[0]["Plan"])), statement


def test_what_can_be_compared_is_found_by_indexes(crowded: tuple[Database, UUID]) -> None:
    """The newest results, among them those of failed jobs, of which no more than so many are looked at."""
    database, owner_id = crowded
    with heard(database) as sent, database.read() as session:
        found = job_queries.newest_with_result(session, Viewer(owner_id), limit=PAGE)
    assert len(found) == PAGE
    for statement, parameters in sent:
        with database.engine.connect() as connection:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            (answer,) = connection.exec_driver_sql(explain, parameters).one()
            connection.rollback()
        plan = list(nodes(answer[0]["Plan"]))
        # Without rows, as artifacts are here, a table is read as it is.
        read = {one["Relation Name"] for one in plan if one["Node Type"] == "Seq Scan"}
        assert read <= {"artifacts"}, statement
        assert all(one["Actual Rows"] <= job_queries.MOST_COUNTED for one in plan), statement


def test_deleting_reads_no_table(crowded: tuple[Database, UUID]) -> None:
    """Neither for the row nor for what refers to it."""
    database, _ = crowded
    job_id = newest_id(database, JobState.FAILED)
    query = delete(Job).where(Job.id == job_id)
    check(database, query, most_rows=1)
    clones: Select[Any] = select(Job.id).where(Job.retry_of == job_id)
    check(database, clones, most_rows=1)
