"""A cancellation ends a job in `cancelled` within 15 s, wherever it is, and nothing of it is left.

All at production values: orders are looked for every second, a process has ten to end.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from ghosted_core.spec import JobSpec, UploadText
from services.artifacts import retention
from services.artifacts.manifest import attempt_prefix
from services.errors import JobFinishedError
from services.jobs.states import JobState
from services.uploads import repository as uploads
from services.uploads.checking import TextFormat, check_text
from services.uploads.service import object_key
from tests.faults.jobs import Jobs
from tests.faults.s3_proxy import Asked, Hang, Proxy, Refuse, before
from tests.faults.staged import STAGES
from tests.faults.supervised import Supervised, cancel, seconds_to_end, soon, staged, supervising, unfinished
from worker.child import Child
from worker.config import WorkerSettings

MOST_SECONDS = 15
Figure = Callable[[str, object], None]


@pytest.fixture
def proxy(settings: WorkerSettings) -> Iterator[Proxy]:
    """A proxy before the store, without faults as yet."""
    with before(settings.s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def here(settings: WorkerSettings, tmp_path: Path) -> WorkerSettings:
    """A worker with a scratch folder of the test's own."""
    return settings.model_copy(update={"scratch": tmp_path / "scratch"})


@pytest.fixture
def through(here: WorkerSettings, proxy: Proxy) -> WorkerSettings:
    """A worker that sees the store through the proxy."""
    return here.model_copy(update={"s3_endpoint": proxy.address, "s3_part_bytes": 5 * 2**20})


def check_cancelled(running: Supervised, figure: Figure) -> None:
    """The job has ended as it should, and in time, counted from the request by the database's clock."""
    job = running.join()
    assert job.state == JobState.CANCELLED
    assert running.jobs.types(job.id)[-1] == "cancelled"
    assert seconds_to_end(job) < MOST_SECONDS
    figure("seconds to cancel", seconds_to_end(job))


def test_queued(jobs: Jobs, here: WorkerSettings) -> None:
    """A job that waits is cancelled at once, and the wake-up that comes later does nothing."""
    job_id = jobs.submit(staged())
    assert cancel(jobs.database, job_id).state == JobState.CANCELLED
    with supervising(jobs, job_id, here) as running:
        assert running.join().attempt == 0
    assert jobs.types(job_id) == ["submitted", "cancelled"]


@pytest.mark.parametrize("stage", [*STAGES, "verify"])
def test_running(jobs: Jobs, here: WorkerSettings, stage: str, figure: Figure) -> None:
    """In each stage the process ends, and what was uploaded is gone when the job says so."""
    with supervising(jobs, jobs.submit(staged(stage)), here) as running:
        running.reach(stage)
        if stage == "verify":
            # Not while the files come back, but in the process that loads them.
            soon(running.is_staying)
        running.cancel()
        check_cancelled(running, figure)
    running.check_gone()


def test_deaf_process(jobs: Jobs, here: WorkerSettings, figure: Figure) -> None:
    """A process that ignores SIGTERM is killed in time."""
    with supervising(jobs, jobs.submit(staged("score", "deaf")), here) as running:
        running.reach("score")
        running.cancel()
        check_cancelled(running, figure)
    running.check_gone()


@pytest.mark.parametrize("kind", ["begin", "part", "complete", "put", "list", "get"])
def test_within_a_transfer(
    jobs: Jobs, through: WorkerSettings, proxy: Proxy, kind: str, figure: Figure
) -> None:
    """A request of upload or download that hangs is given up, and the file's other parts go with it."""
    hung: list[Asked] = []

    def plan(asked: Asked) -> Hang | None:
        # The first of its kind only: what deletes the rest gets its answers.
        if asked.kind != kind or hung:
            return None
        hung.append(asked)
        return Hang()

    proxy.plan = plan
    with supervising(jobs, jobs.submit(staged("mib12")), through) as running:
        assert proxy.hanging.wait(120)
        running.reach("verify" if kind == "get" else "upload")
        running.cancel()
        check_cancelled(running, figure)
    running.check_gone()


def bring(jobs: Jobs) -> UploadText:
    """A text that a user has uploaded."""
    content = b"The fox is quick.\n"
    with jobs.database.write() as session:
        upload = uploads.add(session, None, TextFormat.TXT, len(content), lasts=timedelta(days=1))
        found = check_text([content], TextFormat.TXT, max_line_bytes=100)
        uploads.complete(session, upload, found, lasts=timedelta(days=1))
    jobs.store.client.put_object(Bucket=jobs.store.bucket, Key=object_key(upload), Body=content)
    return UploadText(id=upload.id, sha256=found.sha256)


def on_upload(jobs: Jobs) -> JobSpec:
    """A job for the stand-in that names an upload."""
    return JobSpec.model_validate(
        {**staged().model_dump(), "calibration": {"dataset": bring(jobs).model_dump()}}
    )


@pytest.mark.parametrize("kind", ["list", "get"])
def test_store_hangs_over_the_users_text(
    jobs: Jobs, through: WorkerSettings, proxy: Proxy, kind: str, figure: Figure
) -> None:
    """While a text of the user's does not come, for as long as the store hangs, the job can be cancelled."""
    proxy.plan = lambda asked: Hang() if asked.kind == kind else None
    with supervising(jobs, jobs.submit(on_upload(jobs)), through) as running:
        assert proxy.hanging.wait(60)
        running.cancel()
        check_cancelled(running, figure)
    running.check_gone()


def test_users_text_outlasts_a_store_that_fails(jobs: Jobs, through: WorkerSettings, proxy: Proxy) -> None:
    """A store that refuses for a while, more often than a request is tried, costs the job no attempt."""
    proxy.plan = lambda asked: Refuse() if asked.kind == "get" and proxy.count("get") < 6 else None
    with supervising(jobs, jobs.submit(on_upload(jobs)), through) as running:
        job = running.join()
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1)


def test_store_that_hangs_altogether(
    jobs: Jobs, through: WorkerSettings, proxy: Proxy, figure: Figure
) -> None:
    """If even deleting is not possible, the job ends in time; the next sweep deletes."""
    proxy.plan = lambda asked: Hang() if asked.part == 2 or proxy.hanging.is_set() else None
    with supervising(jobs, jobs.submit(staged("mib12")), through) as running:
        assert proxy.hanging.wait(120)
        running.cancel()
        check_cancelled(running, figure)
    assert unfinished(jobs.store, running.job_id) != []
    with jobs.database.write() as session:
        retention.delete_dead(session, jobs.store, grace_seconds=0)
    running.check_gone()


@pytest.mark.parametrize("stage", ["score", "evaluate"])
def test_real_pipeline(
    jobs: Jobs, here: WorkerSettings, long_spec: JobSpec, stage: str, figure: Figure
) -> None:
    """The real pipeline ends within its stages."""
    with supervising(jobs, jobs.submit(long_spec), here, actor=Child) as running:
        running.reach(stage)
        running.cancel()
        check_cancelled(running, figure)
    running.check_gone()


@pytest.mark.parametrize("words", [("verify",), ("fade", "save"), ("refuse", "save")], ids="-".join)
def test_accepted_cancellation_always_wins(jobs: Jobs, here: WorkerSettings, words: tuple[str, ...]) -> None:
    """The job is cancelled, even if it succeeds or fails before the worker looks for orders again."""
    blind = here.model_copy(update={"orders_seconds": 600})
    with supervising(jobs, jobs.submit(staged("brief2", *words)), blind) as running:
        running.reach(words[-1])
        running.cancel()
        assert running.join().state == JobState.CANCELLED
    running.check_gone()


def test_after_the_end(jobs: Jobs, here: WorkerSettings) -> None:
    """A job that has ended cannot be cancelled, is told so, and stays as it is."""
    with supervising(jobs, jobs.submit(staged()), here) as running:
        before = running.join()
    assert before.state == JobState.SUCCEEDED
    with pytest.raises(JobFinishedError) as told:
        cancel(jobs.database, before.id)
    assert (told.value.status, told.value.code) == (409, "job_finished")
    after = jobs.read(before.id)
    assert (after.state, after.event_count, after.cancel_requested_at) == (
        JobState.SUCCEEDED,
        before.event_count,
        None,
    )
    jobs.check_whole([before.id])


def test_twice(jobs: Jobs, here: WorkerSettings) -> None:
    """Asking twice is one event."""
    with supervising(jobs, jobs.submit(staged("score")), here) as running:
        running.reach("score")
        running.cancel()
        running.cancel()
        running.join()
    assert jobs.types(running.job_id).count("cancel_requested") == 1


def test_earlier_attempts_are_cleared_too(jobs: Jobs, here: WorkerSettings) -> None:
    """What a worker that was killed left behind goes when a later attempt is cancelled."""
    job_id = jobs.submit(staged("score"))
    with jobs.database.write() as session:
        session.execute(text("UPDATE jobs SET attempt = 1 WHERE id = :id"), {"id": job_id})
    leave_behind(jobs, job_id, 1)
    with supervising(jobs, job_id, here) as running:
        running.reach("score")
        running.cancel()
        assert running.join().attempt == 2
    running.check_gone()


def test_late_worker_clears_only_its_own(jobs: Jobs) -> None:
    """A worker that was left behind deletes nothing of the attempts after its own."""
    job_id = uuid4()
    for attempt in (1, 2, 11):
        leave_behind(jobs, job_id, attempt)
    retention.delete_attempts(jobs.store, job_id, up_to=1)
    assert {key.split("/")[2] for key in jobs.objects(job_id)} == {"2", "11"}
    assert {key.split("/")[2] for key in unfinished(jobs.store, job_id)} == {"2", "11"}
    assert retention.delete_objects_of(jobs.store, job_id) == 2
    assert (jobs.objects(job_id), unfinished(jobs.store, job_id)) == ({}, [])


def leave_behind(jobs: Jobs, job_id: UUID, attempt: int) -> None:
    """An object and an unfinished upload of an attempt."""
    place = {"Bucket": jobs.store.bucket, "Key": attempt_prefix(job_id, attempt) + "model.safetensors"}
    jobs.store.client.put_object(**place, Body=b"old")
    jobs.store.client.create_multipart_upload(**place)


@pytest.fixture
def long_spec(tiny_folder: Path, text_file: Path) -> JobSpec:
    """A job on the tiny Llama with some seconds of work in the stages that read text."""
    text = {"kind": "local", "path": str(text_file)}
    return JobSpec.model_validate(
        {
            "model": {"kind": "local", "path": str(tiny_folder)},
            # Looks at the text once a layer and once more for each that goes.
            "strategy": "sleb",
            "layers": 2,
            "calibration": {
                "dataset": text,
                "sequences": 40,
                "sequence_length": 64,
                "held_out_sequences": 2,
            },
            "evaluation": {"windows": 60, "prompts": ["The fox"], "new_tokens": 500},
        }
    )
