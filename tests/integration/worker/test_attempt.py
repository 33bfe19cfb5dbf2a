"""One attempt at a job, on the real database and object store."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from ghosted_core.checkpoint.patched import verify_checkpoint
from ghosted_core.spec import UploadText
from services.artifacts.manifest import Manifest
from services.jobs import repository
from services.jobs.states import JobState
from services.sealing import SecretBox
from services.telemetry import open_tracing
from services.uploads import repository as uploads
from services.uploads.checking import TextFormat, check_text
from services.uploads.service import object_key
from tests.collector_double import running_collector
from tests.integration.worker.conftest import EVERYONE, Jobs, Running
from worker.supervisor import Tools, supervise

Start = Callable[..., Running]
KEY = "0123456789abcdef" * 2


def beginning(file: Path) -> str:
    """The file's first megabyte, or nothing if it is gone meanwhile."""
    try:
        with file.open("rb") as opened:
            return opened.read(1 << 20).decode(errors="replace")
    except FileNotFoundError:
        return ""


@pytest.fixture(scope="module")
def succeeded(tools: Tools, jobs: Jobs) -> UUID:
    """A job that went all the way."""
    job_id = jobs.submit()
    supervise(tools, job_id)
    return job_id


def test_artifact_is_the_checkpoint(tools: Tools, jobs: Jobs, succeeded: UUID, tmp_path: Path) -> None:
    """What lies in the store after success is the whole checkpoint, and loads and answers as it should."""
    artifact = jobs.artifact(succeeded)
    assert artifact is not None
    assert artifact.prefix == f"jobs/{succeeded}/1/"
    manifest = Manifest.model_validate(artifact.manifest)
    for file in manifest.files:
        path = tmp_path / "pulled" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        tools.store.download(artifact.prefix + file.path, path)
    checked = verify_checkpoint(tmp_path / "pulled")
    assert len(checked.manifest.plan.removed) == 2
    assert manifest.summary["plan"]["removed"] == list(checked.manifest.plan.removed)
    assert artifact.total_bytes == sum(file.size_bytes for file in manifest.files)


def test_story_is_told(jobs: Jobs, succeeded: UUID) -> None:
    """The events tell every stage in order, from submission to success, and the row agrees."""
    job = jobs.read(succeeded)
    assert (job.state, job.attempt, job.failure, job.lease_token) == (JobState.SUCCEEDED, 1, None, None)
    events = jobs.events(succeeded)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    stages = [event.payload["stage"] for event in events if event.type == "stage_started"]
    order = ["load", "score", "calibrate", "solve", "patch", "evaluate", "evaluate"]
    order += ["save", "upload", "verify"]
    assert stages == order
    finished = [event.payload["stage"] for event in events if event.type == "stage_finished"]
    assert finished == order
    (chosen,) = [event.payload for event in events if event.type == "layers_chosen"]
    assert (len(chosen["removed"]), chosen["layer_count"]) == (2, 6)
    assert [events[0].type, events[1].type, events[-1].type] == ["submitted", "claimed", "succeeded"]


def test_metrics_are_kept(jobs: Jobs, succeeded: UUID) -> None:
    """The perplexities of the three variants are metrics of the job."""
    with jobs.database.read() as session:
        metrics = repository.list_metrics(session, jobs.read(succeeded))
    names = {metric.name for metric in metrics if metric.value is not None and metric.value > 1}
    assert names >= {"perplexity_dense", "perplexity_pruned", "perplexity_repaired"}


def test_nothing_is_left(tools: Tools, succeeded: UUID) -> None:
    """The scratch folder is gone after success."""
    assert tools.settings.scratch is not None
    assert list(tools.settings.scratch.iterdir()) == []


def test_second_wake_up_does_nothing(tools: Tools, jobs: Jobs, succeeded: UUID) -> None:
    """A repeated message for a job that has ended changes nothing."""
    before = jobs.read(succeeded).event_count
    supervise(tools, succeeded)
    assert jobs.read(succeeded).event_count == before


def test_unknown_job(tools: Tools) -> None:
    """A message for a job that does not exist does nothing."""
    supervise(tools, uuid4())


def test_user_error_fails_at_once(tools: Tools, jobs: Jobs) -> None:
    """A model that is not there fails the job with code, advice and stage; it is not tried again."""
    job_id = jobs.submit(model={"kind": "local", "path": "/nowhere/model"})
    supervise(tools, job_id)
    job = jobs.read(job_id)
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert job.failure["code"] == "model_not_found"
    assert (job.failure["stage"], job.failure["attempt"], job.failure["retryable"]) == ("load", 1, False)
    assert job.failure["advice"]


def test_transient_error_is_tried_again(
    tools: Tools, jobs: Jobs, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hub that cannot be reached sends the job back to the queue, until the last attempt fails it."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    job_id = jobs.submit(model={"kind": "hub", "id": "owner/name"})
    start(job_id, max_attempts=2).join()
    assert (jobs.read(job_id).state, jobs.events(job_id)[-1].payload["cause"]) == (
        JobState.QUEUED,
        "hub_unavailable",
    )
    start(job_id, max_attempts=2).join()
    job = jobs.read(job_id)
    assert (job.state, job.attempt) == (JobState.FAILED, 2)
    assert job.failure is not None
    assert (job.failure["code"], job.failure["retryable"]) == ("hub_unavailable", True)


def test_killed_runner_is_a_lost_attempt(jobs: Jobs, start: Start) -> None:
    """A runner ended by SIGKILL, as by the kernel for want of memory, sends the job back to the queue."""
    running = start(jobs.submit())
    os.kill(running.process("worker.runner"), signal.SIGKILL)
    running.join()
    assert jobs.read(running.job_id).state == JobState.QUEUED
    assert jobs.events(running.job_id)[-1].payload["cause"] == "worker_lost"


def test_cancel_stops_the_runner(jobs: Jobs, start: Start) -> None:
    """A cancellation ends the process within seconds, and the job is cancelled."""
    running = start(jobs.submit())
    running.process("worker.runner")
    with jobs.database.write() as session:
        repository.request_cancel(session, EVERYONE, running.job_id)
    running.join(10)
    assert jobs.read(running.job_id).state == JobState.CANCELLED
    assert jobs.artifact(running.job_id) is None


def test_deadline_ends_the_job(jobs: Jobs, start: Start) -> None:
    """A job past its deadline fails with that code."""
    running = start(jobs.submit(deadline_seconds=1))
    running.join(15)
    job = jobs.read(running.job_id)
    assert job.state == JobState.FAILED
    assert job.failure is not None
    assert job.failure["code"] == "deadline_exceeded"


def test_lost_lease_stops_the_runner(jobs: Jobs, start: Start) -> None:
    """An attempt whose job was given to another worker stops, and writes nothing more."""
    running = start(jobs.submit())
    running.process("worker.runner")
    with jobs.database.write() as session:
        taken = "UPDATE jobs SET lease_token = gen_random_uuid(), attempt = 2 WHERE id = :id"
        session.execute(text(taken), {"id": running.job_id})
    running.join(15)
    job = jobs.read(running.job_id)
    assert (job.state, job.attempt) == (JobState.RUNNING, 2)
    assert jobs.artifact(running.job_id) is None


def test_shutdown_gives_the_job_back(jobs: Jobs, start: Start) -> None:
    """A worker that is told to end gives its job back to the queue at once."""
    running = start(jobs.submit())
    running.process("worker.runner")
    running.tools.shutdown.set()
    running.join(15)
    assert jobs.read(running.job_id).state == JobState.QUEUED
    assert jobs.events(running.job_id)[-1].payload["cause"] == "worker_shutdown"


def test_runner_has_no_credentials(jobs: Jobs, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's environment, arguments and open files hold neither the worker's secrets nor the token."""
    tools = start(jobs.submit()).tools
    settings = tools.settings
    secrets = [
        settings.database_url.get_secret_value(),
        settings.redis_url.get_secret_value(),
        settings.s3_secret_key.get_secret_value(),
        settings.s3_access_key,
        "a-token-of-the-operator",
        "hf_TheTokenOfTheUser",
        KEY,
    ]
    for name in ("GHOSTED_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "UNHEARD_OF"):
        monkeypatch.setenv(name, "a-token-of-the-operator")
    job_id = jobs.submit()
    with tools.database.write() as session:
        sealed = SecretBox.of(SecretStr(KEY)).seal(SecretStr("hf_TheTokenOfTheUser"), job_id)
        repository.get(session, EVERYONE, job_id).hub_token = sealed
    running = start(job_id, secret_key=SecretStr(KEY))
    process = Path(f"/proc/{running.process('worker.runner')}")
    seen = (process / "environ").read_text() + (process / "cmdline").read_text()
    assert "PYTHONPATH" in seen
    # What is open, and every file of the job's own folder; pipes have no content to look at.
    files = [file for file in (*(process / "fd").iterdir(), *running.scratch.rglob("*")) if file.is_file()]
    seen += "".join(beginning(file) for file in files)
    assert not [secret for secret in secrets if secret in seen]
    running.join(180)
    told = str([(event.type, event.payload) for event in jobs.events(job_id)])
    assert jobs.read(job_id).state == JobState.SUCCEEDED, told
    assert "hf_TheTokenOfTheUser" not in told


def test_an_unreadable_token_fails_the_job(jobs: Jobs, start: Start, tools: Tools) -> None:
    """With other keys than it was sealed with the job fails, says so, and keeps no token."""
    job_id = jobs.submit()
    with tools.database.write() as session:
        sealed = SecretBox.of(SecretStr(KEY)).seal(SecretStr("hf_TheTokenOfTheUser"), job_id)
        repository.get(session, EVERYONE, job_id).hub_token = sealed
    start(job_id).join()
    job = jobs.read(job_id)
    assert job.failure is not None
    assert (job.state, job.failure["code"]) == (JobState.FAILED, "token_unreadable")
    assert job.hub_token is None


@pytest.fixture
def brought(tools: Tools) -> UploadText:
    """A text that a user has uploaded."""
    content = "\n\n".join(f"Document {number} is about the number {number}." * 9 for number in range(300))
    with tools.database.write() as session:
        upload = uploads.add(session, None, TextFormat.TXT, len(content), lasts=timedelta(days=1))
        found = check_text([content.encode()], TextFormat.TXT, max_line_bytes=10_000)
        uploads.complete(session, upload, found, lasts=timedelta(days=1))
    tools.store.client.put_object(Bucket=tools.store.bucket, Key=object_key(upload), Body=content.encode())
    return UploadText(id=upload.id, sha256=found.sha256)


def test_a_job_runs_on_an_upload(jobs: Jobs, tools: Tools, brought: UploadText, tmp_path: Path) -> None:
    """The runner reads the user's own text, and the artifact names it by id and holds none of it."""
    wanted = jobs.spec.calibration.model_copy(update={"dataset": brought})
    job_id = jobs.submit(calibration=wanted.model_dump())
    supervise(tools, job_id)
    job = jobs.read(job_id)
    assert job.state == JobState.SUCCEEDED, job.failure
    artifact = jobs.artifact(job_id)
    assert artifact is not None
    stored = b""
    for file in Manifest.model_validate(artifact.manifest).files:
        if file.path.endswith((".json", ".md", ".txt")):
            tools.store.download(artifact.prefix + file.path, tmp_path / "file")
            stored += (tmp_path / "file").read_bytes()
    assert str(brought.id).encode() in stored
    assert b"is about the number" not in stored


@pytest.mark.parametrize(("how", "code"), [("changed", "data"), ("gone", "data_not_found")])
def test_an_upload_that_is_not_what_it_was(
    jobs: Jobs, tools: Tools, brought: UploadText, how: str, code: str
) -> None:
    """Bytes that were sent after the check, or an upload deleted meanwhile, fail the job and say so."""
    with tools.database.write() as session:
        upload = uploads.get(session, None, brought.id)
        if how == "gone":
            uploads.remove(session, upload)
    if how == "changed":
        tools.store.client.put_object(Bucket=tools.store.bucket, Key=object_key(upload), Body=b"other")
    wanted = jobs.spec.calibration.model_copy(update={"dataset": brought})
    job_id = jobs.submit(calibration=wanted.model_dump())
    supervise(tools, job_id)
    failure = jobs.read(job_id).failure
    assert failure is not None
    assert failure["code"] == code


def test_an_attempt_belongs_to_the_trace_of_its_submission(jobs: Jobs, tools: Tools) -> None:
    """Every stage of runner and worker is a span below the attempt, which is one below the request."""
    job_id = jobs.submit()
    with tools.database.write() as session:
        repository.get(session, EVERYONE, job_id).traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    with running_collector() as collector:
        tracing = open_tracing(collector.endpoint, "ghosted-worker")
        supervise(replace(tools, tracing=tracing), job_id)
        tracing.close()
    attempt = collector.named("attempt")
    assert (attempt.service, attempt.trace, attempt.parent) == ("ghosted-worker", "a" * 32, "b" * 16)
    assert attempt.attributes == {"ghosted.job_id": str(job_id), "ghosted.attempt": "1"}
    told = [event.payload["stage"] for event in jobs.events(job_id) if event.type == "stage_started"]
    stages = [span for span in collector.spans if span.name.startswith("stage ")]
    assert [span.attributes["ghosted.stage"] for span in stages] == told
    assert {"load", "save", "upload", "verify"} <= set(told)
    assert {(span.trace, span.parent) for span in stages} == {(attempt.trace, attempt.span)}


def test_two_workers_one_job(jobs: Jobs, start: Start) -> None:
    """Of two workers that get the same message, one runs the job."""
    job_id = jobs.submit()
    first, second = start(job_id), start(job_id)
    for running in (first, second):
        running.thread.join(60)
    job = jobs.read(job_id)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1)
    assert [event.type for event in jobs.events(job_id)].count("claimed") == 1


def test_changed_upload_is_noticed(jobs: Jobs, start: Start) -> None:
    """A stored object that differs from what was sent never becomes an artifact."""
    job_id = jobs.submit()
    stop = threading.Event()
    running = start(job_id)
    store = running.tools.store

    def spoil() -> None:
        key = f"jobs/{job_id}/1/model.safetensors"
        while not stop.is_set():
            for found in store.list_objects(f"jobs/{job_id}/"):
                if found.key == key:
                    store.client.put_object(Bucket=store.bucket, Key=key, Body=bytes(found.size_bytes))

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    running.join()
    stop.set()
    spoiler.join()
    assert jobs.artifact(job_id) is None
    assert jobs.events(job_id)[-1].payload["cause"] == "upload_changed"


def test_parent_is_free_of_torch() -> None:
    """Neither the worker's application nor its supervisor loads torch, transformers or FastAPI."""
    script = (
        "import sys, worker.app, worker.supervisor, worker.__main__\n"
        "print([name for name in ('torch', 'transformers', 'fastapi') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "[]\n"
