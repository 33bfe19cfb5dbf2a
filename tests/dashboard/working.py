"""A worker's supervisor in a thread, for pages that watch a job at work."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from services.artifacts.storage import open_store
from services.jobs.repository import NewJob
from services.jobs.service import submit
from tests.dashboard.conftest import Served
from tests.jobs import tiny_spec
from worker.config import WorkerSettings
from worker.supervisor import Tools, supervise

SHARED = (
    "database_url",
    "redis_url",
    "s3_endpoint",
    "s3_access_key",
    "s3_secret_key",
    "s3_bucket",
    "s3_region",
)


@dataclass(frozen=True)
class Working:
    """A worker that runs one job at a time when told to."""

    served: Served
    tools: Tools
    model: Path
    text: Path

    def submit(self) -> UUID:
        """A queued job: two cuts in the tiny model, by score."""
        spec = tiny_spec(self.model, self.text, strategy="shortgpt", layers=2)
        new = NewJob(spec, deadline_seconds=600, owner_id=self.served.owner_id)
        with self.served.database.write() as session:
            return submit(session, new).id

    @contextmanager
    def running(self, job_id: UUID) -> Iterator[None]:
        """The job is worked on meanwhile; it has ended, or is given back, afterwards."""
        thread = threading.Thread(target=supervise, args=(self.tools, job_id))
        thread.start()
        try:
            yield
        finally:
            self.tools.shutdown.set()
            thread.join(60)
            assert not thread.is_alive()


def working(served: Served, folder: Path, model: Path, text: Path) -> Working:
    """A worker on the parts of the service, with its files in `folder`."""
    settings = WorkerSettings.model_validate(
        {
            **{name: getattr(served.settings, name) for name in SHARED},
            "cache": folder / "cache",
            "scratch": folder / "scratch",
            "device": "cpu",
            "orders_seconds": 0.2,
            "stop_seconds": 5,
        }
    )
    tools = Tools(settings, served.database, open_store(settings), threading.Event())
    return Working(served, tools, model, text)
