"""Puts wake-ups on the broker as Celery messages. They carry the job's id and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from celery import Celery
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from services.errors import BrokerUnavailableError
from services.outbox.relay import Publish
from services.workers.classes import QUEUE

__all__ = ["QUEUE", "open_publisher", "sending_app"]


def sending_app(redis_url: str) -> Celery:
    """A Celery application that only sends: JSON, no results, short patience."""
    app = Celery("ghosted", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_default_queue=QUEUE,
        task_publish_retry=False,
        broker_connection_timeout=3,
        broker_transport_options={
            # The outbox tries again by itself, and must not stand still meanwhile.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
            "socket_timeout": 5,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
    )
    return app


@contextmanager
def open_publisher(redis_url: str) -> Iterator[Publish]:
    """A function that sends; its connections are closed afterwards."""
    app = sending_app(redis_url)

    def publish(topic: str, job_id: UUID, queue: str) -> None:
        try:
            app.send_task(topic, kwargs={"job_id": str(job_id)}, queue=queue, ignore_result=True)
        except (KombuError, OperationalError, RedisError, OSError) as error:
            raise BrokerUnavailableError(f"the broker failed: {type(error).__name__}") from error

    try:
        yield publish
    finally:
        app.close()
