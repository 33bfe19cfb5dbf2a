"""The one task: a wake-up that names a job."""

import logging
import os
import threading
from dataclasses import replace
from uuid import UUID

from celery import Celery
from pydantic import ValidationError
from sqlalchemy import select

from ghosted_core.catalog import builtin_catalog
from ghosted_core.spec import JobSpec
from services.artifacts.storage import open_store
from services.db.models import Job
from services.db.sessions import Database, open_database
from services.jobs.rows import RUN_JOB
from worker import caching
from worker.admission import decline_if_too_large, only_one, send_again_later
from worker.config import WorkerSettings
from worker.identity import ThisWorker
from worker.supervisor import Tools, supervise

logger = logging.getLogger(__name__)


def register(app: Celery, settings: WorkerSettings, this: ThisWorker, shutdown: threading.Event) -> None:
    """`app` knows the task `run_job`; nothing connects before it runs."""
    own = settings.model_copy(update={"device": this.place.device})

    def run_job(job_id: str) -> None:
        """Bring the job as far as this worker can. The row is the job: a repeated wake-up does nothing."""
        # Opened for each job: connections must not cross the fork, and jobs are rare and long.
        database = open_database(settings.database_url.get_secret_value())
        try:
            with only_one(this.place) as alone:
                if _admits(database, UUID(job_id), this, alone=alone):
                    _keep_what_it_reads(database, UUID(job_id), settings)
                    tools = Tools(own, database, open_store(settings), shutdown)
                    environment = this.place.environment(os.environ)
                    supervise(replace(tools, worker=this.name, environment=environment), UUID(job_id))
        finally:
            database.close()
        this.pulse.show_done()

    app.task(name=RUN_JOB, ignore_result=True, acks_late=False)(run_job)


def _admits(database: Database, job_id: UUID, this: ThisWorker, *, alone: bool) -> bool:
    """Whether the job may be claimed here; if not, its wake-up comes again."""
    with database.write() as session:
        if not alone:
            send_again_later(session, job_id)
            reason: str | None = "another worker runs a job on this GPU"
        else:
            reason = decline_if_too_large(session, job_id, this.place.room())
    if reason is not None:
        logger.warning("job %s is not taken: %s", job_id, reason)
    return reason is None


def _keep_what_it_reads(database: Database, job_id: UUID, settings: WorkerSettings) -> None:
    """What the cache holds for the job is not deleted as unused."""
    with database.read() as session:
        stored = session.scalar(select(Job.spec).where(Job.id == job_id))
    try:
        spec = JobSpec.model_validate(stored)
    except ValidationError:
        return  # The attempt will say so.
    caching.mark_used(settings.cache, spec, builtin_catalog())
