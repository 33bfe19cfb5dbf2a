"""The one task: a wake-up that names a job."""

import threading
from uuid import UUID

from celery import Celery

from services.artifacts.storage import open_store
from services.db.sessions import open_database
from services.jobs.rows import RUN_JOB
from services.telemetry import open_tracing
from worker.config import WorkerSettings
from worker.supervisor import Tools, supervise


def register(app: Celery, settings: WorkerSettings, shutdown: threading.Event) -> None:
    """`app` knows the task `run_job`; nothing connects before it runs."""

    def run_job(job_id: str) -> None:
        """Bring the job as far as this worker can. The row is the job: a repeated wake-up does nothing."""
        # Opened for each job: connections must not cross the fork, and jobs are rare and long.
        database = open_database(settings.database_url.get_secret_value())
        tracing = open_tracing(settings.otlp_endpoint, "ghosted-worker")
        try:
            supervise(Tools(settings, database, open_store(settings), shutdown, tracing), UUID(job_id))
        finally:
            tracing.close()
            database.close()

    app.task(name=RUN_JOB, ignore_result=True, acks_late=False)(run_job)
