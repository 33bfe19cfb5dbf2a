"""The Celery application of a worker."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import billiard
from celery import Celery
from celery.signals import worker_process_init, worker_ready, worker_shutting_down
from kombu import Exchange, Queue

from services.leash import tie_to
from services.outbox.publisher import QUEUE
from services.readiness import hide, show
from services.workers.classes import parse_classes
from worker.config import WorkerSettings
from worker.identity import ThisWorker
from worker.pulse import Pulse
from worker.tasks import register

# To the pool's process; SIGTERM has a meaning of its own there, which ends it at once.
ORDER = signal.SIGUSR2


def create_app(settings: WorkerSettings, this: ThisWorker) -> Celery:
    """An application that takes one job at a time, JSON only, and stores no results."""
    classes = parse_classes(settings.memory_classes)
    queues = classes.queues_of(this.place.devices()[0].memory_bytes)
    app = Celery("ghosted", broker=settings.redis_url.get_secret_value(), set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        # Early: the row in the database is the job. A message lost with its worker is sent again.
        task_acks_late=False,
        task_default_queue=QUEUE,
        task_queues=[Queue(name, Exchange(name), routing_key=name) for name in queues],
        worker_pool="prefork",
        worker_concurrency=1,
        # A message taken ahead would wait behind a job of hours while other workers idle.
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
            # In the order of the queues above, as long as there is something in the first.
            "queue_order_strategy": "priority",
        },
    )
    shutdown = threading.Event()
    register(app, settings, this, shutdown)
    _obey_shutdown(shutdown)
    _tell_ready(this.pulse)
    if settings.ready_file is not None:
        _show_readiness(settings.ready_file)
    return app


def _tell_ready(pulse: Pulse) -> None:
    """The worker's first process knows when messages are taken."""

    def tell(**_: Any) -> None:
        pulse.show_ready()

    worker_ready.connect(tell, weak=False)


def _show_readiness(file: Path) -> None:
    """`file` exists from when the worker takes jobs until it is told to end."""
    hide(file)

    def take_jobs(**_: Any) -> None:
        show(file)

    def take_none(**_: Any) -> None:
        hide(file)

    worker_ready.connect(take_jobs, weak=False)
    worker_shutting_down.connect(take_none, weak=False)


def _obey_shutdown(shutdown: threading.Event) -> None:
    """When the worker is told to end, its running job is given back to the queue at once.

    Celery would wait for the job, which may take hours. The pool's process, a fork that has its own
    copy of `shutdown`, learns of it by a signal.
    """

    def tell_pool(**_: Any) -> None:
        for child in billiard.active_children():
            if child.pid is not None:
                os.kill(child.pid, ORDER)

    def listen(**_: Any) -> None:
        signal.signal(ORDER, obey)
        # If the worker itself is killed, so that it tells nobody, the kernel does.
        tie_to(os.getppid(), ORDER)

    def obey(_number: int, _frame: FrameType | None) -> None:
        shutdown.set()

    worker_shutting_down.connect(tell_pool, weak=False)
    worker_process_init.connect(listen, weak=False)
