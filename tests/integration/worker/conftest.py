"""A worker's tools on the real parts, and jobs on the tiny Llama."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url

from ghosted_core.spec import JobSpec
from services.artifacts.storage import open_store
from services.db import migrate
from services.db.models import Artifact, Job, JobEvent
from services.db.sessions import Database, open_database
from services.embedded import Stack
from services.embedded.process import processes_in
from services.jobs import repository
from services.jobs.repository import NewJob, Viewer
from services.jobs.service import submit
from services.jobs.states import FINAL_STATES
from worker.config import WorkerSettings
from worker.supervisor import Tools, supervise

EVERYONE = Viewer(None)


@pytest.fixture(scope="session")
def worker_url(stack: Stack) -> Iterator[str]:
    """The address of a database of the worker tests' own, made by the migrations."""
    name = "worker_tests"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = make_url(stack.database_url).set(database=name).render_as_string(hide_password=False)
    migrate.upgrade(url)
    yield url
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def database(worker_url: str) -> Iterator[Database]:
    """The database; each test looks at its own jobs."""
    database = open_database(worker_url)
    yield database
    database.close()


@pytest.fixture(scope="session")
def settings(stack: Stack, worker_url: str, tmp_path_factory: pytest.TempPathFactory) -> WorkerSettings:
    """A worker that looks for orders often and gives little time to stop."""
    folder = tmp_path_factory.mktemp("worker")
    return WorkerSettings.model_validate(
        {
            "database_url": worker_url,
            "redis_url": stack.redis_url,
            "s3_endpoint": stack.s3.endpoint,
            "s3_access_key": stack.s3.access_key,
            "s3_secret_key": stack.s3.secret_key,
            "s3_bucket": stack.s3.bucket,
            "cache": folder / "cache",
            "scratch": folder / "scratch",
            "device": "cpu",
            "orders_seconds": 0.2,
            "stop_seconds": 5,
            "relay_seconds": 0.1,
        }
    )


@pytest.fixture(scope="session")
def tools(settings: WorkerSettings, database: Database) -> Tools:
    """A worker's tools."""
    return Tools(settings, database, open_store(settings), threading.Event())


@pytest.fixture(scope="session")
def spec(tiny_folder: Path, text_file: Path) -> JobSpec:
    """Two layers of the tiny Llama, repaired."""
    return JobSpec.model_validate(
        {
            "model": {"kind": "local", "path": str(tiny_folder)},
            "layers": 2,
            "calibration": {
                "dataset": {"kind": "local", "path": str(text_file)},
                "sequences": 8,
                "sequence_length": 64,
                "held_out_sequences": 2,
            },
            "evaluation": {"windows": 2, "prompts": ["The fox"], "new_tokens": 4},
        }
    )


@dataclass(frozen=True)
class Jobs:
    """Puts jobs into the database and looks at them."""

    database: Database
    spec: JobSpec

    def submit(self, *, deadline_seconds: int = 600, **changes: object) -> UUID:
        """A queued job; `changes` replace fields of the spec."""
        spec = JobSpec.model_validate({**self.spec.model_dump(), **changes})
        with self.database.write() as session:
            return submit(session, NewJob(spec, deadline_seconds=deadline_seconds)).id

    def read(self, job_id: UUID) -> Job:
        """The job's row."""
        with self.database.read() as session:
            return repository.get(session, EVERYONE, job_id)

    def artifact(self, job_id: UUID) -> Artifact | None:
        """The job's artifact."""
        with self.database.read() as session:
            return repository.get_with_artifact(session, EVERYONE, job_id)[1]

    def events(self, job_id: UUID) -> list[JobEvent]:
        """What happened to it."""
        with self.database.read() as session:
            return list(repository.list_events(session, job_id, after=0, limit=1000))

    def wait(self, job_id: UUID, ready: Callable[[Job], bool], seconds: float = 60) -> Job:
        """The row, once `ready` says so."""
        deadline = time.monotonic() + seconds
        while not ready(job := self.read(job_id)):
            assert time.monotonic() < deadline, (job.state, job.stage, job.failure)
            time.sleep(0.05)
        return job

    def wait_ended(self, job_id: UUID, seconds: float = 60) -> Job:
        """The row of the job that has ended."""
        return self.wait(job_id, lambda job: job.state in FINAL_STATES, seconds)


@pytest.fixture(scope="session")
def jobs(database: Database, spec: JobSpec) -> Jobs:
    """Jobs in the database."""
    return Jobs(database, spec)


@dataclass(frozen=True)
class Running:
    """A job that a thread supervises."""

    tools: Tools
    job_id: UUID
    thread: threading.Thread

    @property
    def scratch(self) -> Path:
        """Where this worker's scratch folders lie."""
        assert self.tools.settings.scratch is not None
        return self.tools.settings.scratch

    def process(self, module: str, seconds: float = 60) -> int:
        """The number of the process that runs `module`, once there is one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for pid in processes_in(self.scratch.resolve()):
                arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if arguments[1:4] == ["-P", "-m", module]:
                    return pid
            time.sleep(0.05)
        raise TimeoutError(module)

    def join(self, seconds: float = 60) -> None:
        """Supervision has ended, and nothing is left of the attempt."""
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        assert processes_in(self.scratch.resolve()) == ()
        assert list(self.scratch.iterdir()) == []


@pytest.fixture
def start(tools: Tools, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Supervise a job in a thread."""
    started: list[Running] = []

    def begin(job_id: UUID, **changes: object) -> Running:
        scratch = tmp_path / f"scratch-{len(started)}"
        settings = tools.settings.model_copy(update={"scratch": scratch, **changes})
        changed = replace(tools, settings=settings, shutdown=threading.Event())
        thread = threading.Thread(target=supervise, args=(changed, job_id))
        thread.start()
        started.append(Running(changed, job_id, thread))
        return started[-1]

    yield begin
    for running in started:
        running.tools.shutdown.set()
        running.thread.join(30)


@pytest.fixture
def worker_environment(settings: WorkerSettings) -> dict[str, str]:
    """The variables that give another process these settings."""
    plain = settings.model_dump(exclude_none=True)
    secrets = {name: getattr(settings, name).get_secret_value() for name in SECRETS}
    named = {f"GHOSTED_{name.upper()}": str(value) for name, value in {**plain, **secrets}.items()}
    return {**os.environ, **named, "PYTHONPATH": str(Path(__file__).parents[3])}


SECRETS = ("database_url", "redis_url", "s3_secret_key")
