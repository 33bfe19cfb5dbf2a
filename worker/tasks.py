"""The one task: a wake-up that names a job."""

import logging
import os
import threading
from uuid import UUID

from celery import Celery

from ghosted_core.registry import read_registry
from services.artifacts.storage import open_store
from services.db.sessions import Database, open_database
from services.jobs.rows import RUN_JOB
from services.telemetry import open_tracing
from worker import caching
from worker.admission import Look, look_at, only_one, send_again_later
from worker.config import WorkerSettings
from worker.identity import ThisWorker
from worker.patience import patiently
from worker.place import Place
from worker.supervisor import Tools, supervise

logger = logging.getLogger(__name__)


def register(app: Celery, settings: WorkerSettings, this: ThisWorker, shutdown: threading.Event) -> None:
    """`app` knows the task `run_job`; nothing connects before it runs.

    Raises:
        InvalidCatalogError: the operator's aliases cannot be used.
    """
    registry = read_registry(settings.catalog)
    own = settings.model_copy(update={"device": this.place.device})

    def run_job(job_id: str) -> None:
        """Bring the job as far as this worker can. The row is the job: a repeated wake-up does nothing."""
        # Opened for each job: connections must not cross the fork, and jobs are rare and long.
        database = open_database(settings.database_url.get_secret_value())
        tracing = open_tracing(settings.otlp_endpoint, "ghosted-worker")
        try:
            tools = Tools(
                own,
                database,
                open_store(settings),
                shutdown,
                worker=this.name,
                environment=this.place.environment(os.environ),
                tracing=tracing,
                registry=registry,
            )
            _take(tools, this.place, UUID(job_id))
        finally:
            tracing.close()
            database.close()
        this.pulse.show_done()

    app.task(name=RUN_JOB, ignore_result=True, acks_late=False)(run_job)


def _take(tools: Tools, place: Place, job_id: UUID) -> None:
    """The job is taken as far as it can be, if there is room for it; else its wake-up comes again."""
    with only_one(place) as alone:
        found = patiently(
            lambda: _look_at(tools.database, place, job_id, alone=alone),
            seconds=tools.settings.lease_seconds,
        )
        if found.declined is not None:
            logger.warning("job %s is not taken: %s", job_id, found.declined)
            return
        if found.spec is not None:
            caching.mark_used(tools.settings.cache, found.spec, tools.registry.catalog())
        supervise(tools, job_id)


def _look_at(database: Database, place: Place, job_id: UUID, *, alone: bool) -> Look:
    with database.write() as session:
        if alone:
            return look_at(session, job_id, place.room())
        send_again_later(session, job_id)
        return Look(declined="another worker runs a job on this GPU")
