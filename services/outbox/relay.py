"""Sends what is due: a message a row, marked in the transaction that read it."""

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import func, select

from services.db.models import OutboxMessage
from services.db.sessions import WriteSession

BATCH = 100
Publish = Callable[[str, UUID], None]


def send_due(session: WriteSession, publish: Publish, *, limit: int = BATCH) -> int:
    """At most `limit` due messages are published and marked sent; returns how many.

    If the process dies between the two, the messages are sent again, which is harmless: a worker
    that cannot claim the job does nothing. Several relays may run: each takes other rows.

    Raises:
        BrokerUnavailableError: the broker does not take them; nothing is marked.
    """
    query = (
        select(OutboxMessage)
        .where(OutboxMessage.sent_at.is_(None), OutboxMessage.available_at <= func.now())
        .order_by(OutboxMessage.available_at, OutboxMessage.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    messages = session.scalars(query).all()
    for message in messages:
        publish(message.topic, message.job_id)
        message.sent_at = func.clock_timestamp()
        message.sends = message.sends + 1
    session.flush()
    return len(messages)
