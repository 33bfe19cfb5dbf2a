"""Rows as the API shows them, with what takes a look at other rows."""

from collections.abc import Sequence

from services.db.models import Job
from services.db.sessions import ReadSession
from services.jobs.listing import queue_positions
from services.jobs.schemas import JobRead, read_job
from services.workers.waiting import waiting_reasons


def show(session: ReadSession, jobs: Sequence[Job], *, lease_seconds: float) -> list[JobRead]:
    """The jobs with their places in the queue, and why they wait if no worker can take them.

    A worker that was silent for longer than a lease is not there.
    """
    places = queue_positions(session, jobs)
    reasons = waiting_reasons(session, jobs, lease_seconds=lease_seconds)
    return [read_job(job, places.get(job.id), reasons.get(job.id)) for job in jobs]


def show_one(session: ReadSession, job: Job, *, lease_seconds: float) -> JobRead:
    """The same of one job."""
    return show(session, [job], lease_seconds=lease_seconds)[0]
