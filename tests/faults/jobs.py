"""Jobs, what became of them, and what must be true of every one that has ended."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select

from ghosted_core.spec import JobSpec
from services.artifacts.manifest import Manifest, job_prefix
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact, Job, JobEvent
from services.db.sessions import Database
from services.jobs import repository
from services.jobs.repository import NewJob, Viewer
from services.jobs.service import submit
from services.jobs.states import FINAL_STATES, JobState

EVERYONE = Viewer(None)


def stand_in(behaviour: str = "quick") -> JobSpec:
    """A job for the stage that needs no torch (stage.py), which behaves as named."""
    return JobSpec.model_validate({"model": f"stand-in/{behaviour}", "layers": 2})


@dataclass(frozen=True)
class Jobs:
    """Puts jobs into the database and looks at them."""

    database: Database
    store: ArtifactStore

    def submit(self, spec: JobSpec | None = None, *, deadline_seconds: int = 3600) -> UUID:
        """A queued job."""
        with self.database.write() as session:
            return submit(session, NewJob(spec or stand_in(), deadline_seconds=deadline_seconds)).id

    def read(self, job_id: UUID) -> Job:
        """The job's row."""
        with self.database.read() as session:
            return repository.get(session, EVERYONE, job_id)

    def events(self, job_id: UUID) -> list[JobEvent]:
        """What happened to it."""
        with self.database.read() as session:
            return list(repository.list_events(session, job_id, after=0, limit=10_000))

    def types(self, job_id: UUID) -> list[str]:
        """The names of its events, in order."""
        return [event.type for event in self.events(job_id)]

    def artifact(self, job_id: UUID) -> Artifact | None:
        """The job's artifact."""
        with self.database.read() as session:
            return session.get(Artifact, job_id)

    def objects(self, job_id: UUID) -> dict[str, int]:
        """Everything below the job's prefix: keys and lengths."""
        return {found.key: found.size_bytes for found in self.store.list_objects(job_prefix(job_id))}

    def count(self, *states: JobState) -> int:
        """How many jobs are in one of `states`."""
        with self.database.read() as session:
            query = select(func.count()).select_from(Job).where(Job.state.in_(states))
            return session.scalars(query).one()

    def wait(self, job_id: UUID, ready: Callable[[Job], object], seconds: float = 240) -> Job:
        """The row, once `ready` says so."""
        deadline = time.monotonic() + seconds
        while not ready(job := self.read(job_id)):
            assert time.monotonic() < deadline, (job.state, job.attempt, job.stage, job.failure)
            time.sleep(0.1)
        return job

    def wait_ended(self, job_id: UUID, seconds: float = 240) -> Job:
        """The row of the job that has ended."""
        return self.wait(job_id, lambda job: job.state in FINAL_STATES, seconds)

    def check_whole(self, job_ids: Iterable[UUID]) -> None:
        """Each has succeeded with exactly one set of files, all of them there, and a story without gaps."""
        for job_id in job_ids:
            job, artifact, events = self.read(job_id), self.artifact(job_id), self.events(job_id)
            assert job.state == JobState.SUCCEEDED, (job.state, job.failure)
            assert [event.number for event in events] == list(range(1, job.event_count + 1))
            assert artifact is not None
            assert artifact.attempt == job.attempt
            listed = Manifest.model_validate(artifact.manifest).files
            wanted = {artifact.prefix + file.path: file.size_bytes for file in listed}
            below = {
                key: size for key, size in self.objects(job_id).items() if key.startswith(artifact.prefix)
            }
            assert below == wanted
            self._check_told_once(events)

    def _check_told_once(self, events: list[JobEvent]) -> None:
        """In no attempt was a stage begun or ended twice, or the job claimed or ended twice.

        A stage that counts several things in turn, as the evaluation does, begins for each of them.
        """
        kinds = ("claimed", "stage_started", "stage_finished", "requeued", "succeeded")
        told = [
            (event.attempt, event.type, *(event.payload.get(name) for name in ("stage", "unit", "seconds")))
            for event in events
            if event.type in kinds
        ]
        assert len(told) == len(set(told)), told
