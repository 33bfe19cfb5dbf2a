"""Publishing as part of the job's trace."""

from uuid import UUID

from sqlalchemy import select

from services.db.models import Job
from services.db.sessions import Database
from services.outbox.relay import Publish
from services.telemetry import NoTracing, Tracing


def traced(publish: Publish, tracing: Tracing, database: Database) -> Publish:
    """`publish`, each call a span of the trace that the job's submission began."""
    if isinstance(tracing, NoTracing):
        return publish

    def publish_traced(topic: str, job_id: UUID, queue: str) -> None:
        # The row, not the message, holds the trace: what is sent again belongs to it too.
        with database.read() as session:
            parent = session.scalar(select(Job.traceparent).where(Job.id == job_id))
        attributes = {"ghosted.job_id": str(job_id)}
        with tracing.span(f"publish {topic}", kind="producer", parent=parent, attributes=attributes):
            publish(topic, job_id, queue)

    return publish_traced
