"""Training after the repair, in the service: the whole way, a second job of the same kind, a cancellation."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from services.artifacts.manifest import Manifest
from services.artifacts.stages import ROOT, open_stages
from services.jobs import repository
from services.jobs.states import JobState
from tests.integration.worker.conftest import EVERYONE, Jobs, Running
from worker.config import WorkerSettings
from worker.keeping import StageKeeper
from worker.supervisor import Tools, supervise

FEW = {"sequences": 8, "held_out_sequences": 2, "epochs": 2, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def succeeded(tools: Tools, jobs: Jobs) -> UUID:
    """A job with training that went all the way."""
    job_id = jobs.submit(finetune=FEW)
    supervise(tools, job_id)
    return job_id


def said(jobs: Jobs, job_id: UUID) -> list[str]:
    return [str(event.payload["message"]) for event in jobs.events(job_id) if event.type == "log"]


def test_the_trained_model_is_the_artifact(jobs: Jobs, succeeded: UUID) -> None:
    """Its stage is one of the job's, its figures are metrics, its manifest says what was trained."""
    job = jobs.read(succeeded)
    assert (job.state, job.failure) == (JobState.SUCCEEDED, None)
    stages = [event.payload["stage"] for event in jobs.events(succeeded) if event.type == "stage_finished"]
    assert stages[stages.index("patch") :][:3] == ["patch", "finetune", "evaluate"]
    with jobs.database.read() as session:
        names = {metric.name for metric in repository.list_metrics(session, job)}
    assert names >= {"perplexity_repaired", "perplexity_finetuned", "finetune_held_out_kl"}
    artifact = jobs.artifact(succeeded)
    assert artifact is not None
    assert Manifest.model_validate(artifact.manifest).summary["finetune"]["tokens"] == 8 * 64


def test_another_job_of_the_kind_starts_where_it_ended(tools: Tools, jobs: Jobs, succeeded: UUID) -> None:
    """Teacher's answers and steps come through the supervisor, who alone reaches the object store."""
    assert jobs.read(succeeded).state == JobState.SUCCEEDED
    job_id = jobs.submit(finetune=FEW, evaluation=None)
    supervise(tools, job_id)
    assert jobs.read(job_id).state == JobState.SUCCEEDED
    told = said(jobs, job_id)
    assert "512 of 512 tokens of the teacher's answers were taken from an earlier run." in told
    assert any(line.endswith("steps of the training were taken from an earlier run.") for line in told)


def test_training_can_be_cancelled(jobs: Jobs, start: Callable[..., Running]) -> None:
    """Between two steps, and nothing of the attempt is left."""
    job_id = jobs.submit(finetune={**FEW, "epochs": 1000, "patience": 10_000}, evaluation=None)
    running = start(job_id)
    jobs.wait(job_id, lambda job: job.stage == "finetune")
    with jobs.database.write() as session:
        repository.request_cancel(session, EVERYONE, job_id)
    assert jobs.wait_ended(job_id).state == JobState.CANCELLED
    running.join()


def test_an_entry_that_is_taken_again_counts_once(settings: WorkerSettings, tmp_path: Path) -> None:
    """Progress is saved every minute: its last form counts against the limit, not all of them."""
    entries = open_stages(settings, f"{ROOT}shared/again/")
    keeper = StageKeeper(entries, tmp_path, 1500, lambda: None)
    key = "0123456789abcdef" * 4
    for size in (1000, 1000, 1400, 2000):
        (tmp_path / key).write_bytes(bytes(size))
        keeper.take(key)
    assert entries.size_bytes(key) == 1400
