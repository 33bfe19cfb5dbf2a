"""Rows as the API shows them, with what takes a look at other rows."""

from collections.abc import Sequence

from services.db.models import Job
from services.db.sessions import ReadSession
from services.jobs.listing import queue_positions
from services.jobs.schemas import JobRead, read_job


def show(session: ReadSession, jobs: Sequence[Job]) -> list[JobRead]:
    """The jobs with their places in the queue."""
    places = queue_positions(session, jobs)
    return [read_job(job, places.get(job.id)) for job in jobs]


def show_one(session: ReadSession, job: Job) -> JobRead:
    """The job with its place in the queue."""
    return show(session, [job])[0]
