"""The statements that every change of a job is made of: one update, one event."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Interval, func, update
from sqlalchemy.dialects.postgresql import insert

from services.db.models import Job, JobEvent, OutboxMessage
from services.db.sessions import WriteSession
from services.jobs.states import FINAL_STATES, JobState, transition
from services.jobs.values import storable
from services.tallies import count_attempt

RUN_JOB = "ghosted.run_job"
NO_LEASE: Mapping[str, Any] = {"lease_token": None, "lease_expires_at": None}
# A token is kept as long as some attempt may need it.
NO_TOKEN: Mapping[str, Any] = {"hub_token": None}
NO_STAGE: Mapping[str, Any] = {
    "stage": None,
    "stage_done": 0,
    "stage_total": None,
    "stage_unit": None,
    "stage_started_at": None,
    "worker": None,
}


def seconds(amount: float | ColumnElement[Any]) -> ColumnElement[timedelta]:
    """`amount` seconds as an interval of the database."""
    return func.make_interval(0, 0, 0, 0, 0, 0, amount, type_=Interval())


def change(
    session: WriteSession, where: tuple[ColumnElement[bool], ...], values: Mapping[str, Any]
) -> Job | None:
    """The one job that matches `where`, changed and locked until the transaction ends; or None."""
    statement = (
        update(Job)
        .where(*where)
        .values(**values)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return session.scalars(statement).one_or_none()


def change_with_event(
    session: WriteSession,
    where: tuple[ColumnElement[bool], ...],
    values: Mapping[str, Any],
    *,
    event: str,
    payload: Mapping[str, Any],
) -> Job | None:
    """As `change`, and the job's next event says so."""
    # The update locks the row, so two events never read the same count: numbers have no gaps.
    job = change(session, where, {**values, "event_count": Job.event_count + 1})
    if job is not None:
        append_event(session, job, event, payload)
    return job


def move(
    session: WriteSession,
    where: tuple[ColumnElement[bool], ...],
    source: JobState,
    target: JobState,
    values: Mapping[str, Any],
    payload: Mapping[str, Any],
) -> Job | None:
    """The job that matches `where` in state `source` is in state `target`; None if none matches.

    Raises:
        TransitionError: the table of states holds no such move.
    """
    event = transition(source, target)
    where = (*where, Job.state == source)
    ending = NO_TOKEN if target in FINAL_STATES else {}
    changes = {**values, **ending, "state": target}
    job = change_with_event(session, where, changes, event=event, payload=payload)
    if job is not None and source is JobState.RUNNING:
        count_attempt(session, payload.get("cause") or payload.get("code") or target.value)
    return job


def append_event(session: WriteSession, job: Job, event: str, payload: Mapping[str, Any]) -> None:
    """The job's event number `event_count` exists."""
    session.execute(
        insert(JobEvent).values(
            job_id=job.id,
            number=job.event_count,
            attempt=job.attempt,
            type=event,
            payload=storable(dict(payload)),
        )
    )


def add_wake_up(session: WriteSession, job: Job, *, delay_seconds: float = 0) -> None:
    """Workers will be told of the job, not before `delay_seconds` from now."""
    due = func.now() + seconds(delay_seconds)
    statement = insert(OutboxMessage).values(topic=RUN_JOB, job_id=job.id, available_at=due)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[OutboxMessage.job_id, OutboxMessage.topic],
            set_={"available_at": due, "sent_at": None, "sends": 0},
        )
    )
