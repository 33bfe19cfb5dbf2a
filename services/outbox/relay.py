"""Sends what is due: a message a row, marked in the transaction that read it."""

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import func, select

from services.db.models import Job, OutboxMessage
from services.db.sessions import WriteSession
from services.workers.classes import ONE_CLASS, MemoryClasses

BATCH = 100
# Topic, job and queue.
Publish = Callable[[str, UUID, str], None]


def send_due(
    session: WriteSession, publish: Publish, *, classes: MemoryClasses = ONE_CLASS, limit: int = BATCH
) -> int:
    """At most `limit` due messages are published and marked sent; returns how many.

    Each goes to the queue of those of `classes` that its job belongs to.

    If the process dies between the two, the messages are sent again, which is harmless: a worker
    that cannot claim the job does nothing. Several relays may run: each takes other rows.

    Raises:
        BrokerUnavailableError: the broker does not take them; nothing is marked.
    """
    query = (
        select(OutboxMessage, Job.needs_memory_bytes)
        .join(Job, Job.id == OutboxMessage.job_id)
        .where(OutboxMessage.sent_at.is_(None), OutboxMessage.available_at <= func.now())
        .order_by(OutboxMessage.available_at, OutboxMessage.id)
        .limit(limit)
        .with_for_update(of=OutboxMessage, skip_locked=True)
    )
    rows = session.execute(query).all()
    for message, needs_bytes in rows:
        publish(message.topic, message.job_id, classes.queue_for(needs_bytes))
        message.sent_at = func.clock_timestamp()
        message.sends = message.sends + 1
    session.flush()
    return len(rows)
