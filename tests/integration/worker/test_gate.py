"""Results that are worse than their spec allows, on the real database and object store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from ghosted_core.checkpoint.patched import verify_checkpoint
from ghosted_core.testing import tiny_llama
from services.artifacts.manifest import Manifest, job_prefix
from services.jobs import repository
from services.jobs.states import JobState
from tests.integration.worker.conftest import EVERYONE, Jobs, Running
from tests.tiny import save_tiny_model
from worker.supervisor import Tools, supervise

Start = Callable[..., Running]
# No repair halves what the dense model loses.
GATE = [{"metric": "perplexity", "max_ratio": 0.5}]


def gated(jobs: Jobs, on_miss: str, **changes: Any) -> UUID:
    """A job that cannot keep its gate."""
    evaluation = jobs.spec.evaluation
    assert evaluation is not None
    wanted = {**evaluation.model_dump(), "prompts": (), "gate": GATE, "on_miss": on_miss}
    return jobs.submit(evaluation=wanted, **changes)


def missed(jobs: Jobs, job_id: UUID) -> dict[str, Any]:
    """Why the job failed, which is its gate."""
    job = jobs.read(job_id)
    assert job.failure is not None, job.state
    assert (job.state, job.failure["code"]) == (JobState.FAILED, "quality_gate"), job.failure
    return job.failure


def test_a_result_that_missed_its_gate_is_kept_where_the_spec_says_so(
    tools: Tools, jobs: Jobs, tmp_path: Path
) -> None:
    """The job failed with the numbers, and its one set of files is stored, loads, and says what it missed."""
    job_id = gated(jobs, "keep")
    supervise(tools, job_id)
    failure = missed(jobs, job_id)
    assert "max_ratio is 0.5, found" in failure["message"]
    artifact = jobs.artifact(job_id)
    assert artifact is not None
    manifest = Manifest.model_validate(artifact.manifest)
    for file in manifest.files:
        path = tmp_path / "pulled" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        tools.store.download(artifact.prefix + file.path, path)
    assert verify_checkpoint(tmp_path / "pulled").manifest.gate == manifest.summary["gate"]
    assert manifest.summary["gate"]["passed"] is False
    stored = {found.key for found in tools.store.list_objects(job_prefix(job_id))}
    assert stored == {f"{job_prefix(job_id)}1/{file.path}" for file in manifest.files}
    events = jobs.events(job_id)
    stages = [event.payload["stage"] for event in events if event.type == "stage_finished"]
    assert stages[-3:] == ["save", "upload", "verify"]
    assert (events[-1].type, events[-1].payload["total_bytes"]) == ("failed", artifact.total_bytes)
    with jobs.database.read() as session:
        measured = {metric.name for metric in repository.list_metrics(session, jobs.read(job_id))}
    assert {"perplexity_dense", "perplexity_repaired"} <= measured


def test_a_result_that_missed_its_gate_is_withheld_unless_the_spec_says_otherwise(
    tools: Tools, jobs: Jobs
) -> None:
    """The numbers stay, and nothing was ever stored."""
    job_id = gated(jobs, "withhold")
    supervise(tools, job_id)
    assert "max_ratio is 0.5, found" in missed(jobs, job_id)["message"]
    assert jobs.artifact(job_id) is None
    assert list(tools.store.list_objects(job_prefix(job_id))) == []
    assert "upload" not in {event.payload.get("stage") for event in jobs.events(job_id)}


def test_a_result_that_answers_nothing_cannot_be_kept(tools: Tools, jobs: Jobs, tmp_path: Path) -> None:
    """Its logits are no numbers, so nobody can verify it: the job fails with its gate, and leaves nothing."""
    model = tiny_llama()
    model.lm_head.weight.fill_(3e38)
    folder = save_tiny_model(model, tmp_path / "broken")
    job_id = gated(jobs, "keep", model={"kind": "local", "path": str(folder)})
    supervise(tools, job_id)
    assert "is not a finite number" in missed(jobs, job_id)["message"]
    assert jobs.artifact(job_id) is None
    assert list(tools.store.list_objects(job_prefix(job_id))) == []


def test_a_cancelled_job_keeps_nothing(jobs: Jobs, start: Start) -> None:
    """Also where its result has missed the gate, and is stored and being verified."""
    running = start(gated(jobs, "keep"))
    running.process("worker.verifier", 240)
    with jobs.database.write() as session:
        repository.request_cancel(session, EVERYONE, running.job_id)
    running.join(60)
    assert jobs.read(running.job_id).state == JobState.CANCELLED
    assert jobs.artifact(running.job_id) is None
    assert list(running.tools.store.list_objects(job_prefix(running.job_id))) == []
