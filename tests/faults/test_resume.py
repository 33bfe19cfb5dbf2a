"""What finished stages found survives a crash, and serves other jobs; nothing else ever does."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import torch

from ghosted_core.spec import JobSpec
from services.artifacts.stages import ROOT, open_stages, stages_prefix, sweep_stages
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from services.embedded.process import processes_in
from tests.faults.jobs import Jobs
from tests.faults.resuming import SCORES, SUMS, Runs, logs
from tests.jobs import tiny_spec
from worker.config import WorkerSettings
from worker.errors import StoppedError, StopReason
from worker.keeping import StageKeeper
from worker.supervisor import Tools, supervise

KEY = "0123456789abcdef" * 4
AFTER_SCORING = {"calibrate", "solve", "patch", "evaluate"}


@pytest.fixture(autouse=True)
def no_entries(store: ArtifactStore) -> Iterator[None]:
    """Each test begins without entries."""
    store.delete_prefix(ROOT)
    yield
    store.delete_prefix(ROOT)


@pytest.fixture
def spec(tiny_folder: Path, text_file: Path) -> JobSpec:
    """Two layers by score, repaired, not evaluated."""
    return tiny_spec(tiny_folder, text_file, evaluation=None)


@pytest.fixture
def runs(settings: WorkerSettings, tmp_path: Path) -> Runs:
    """Jobs' processes; an entry of more than 1 MiB is too long."""
    return Runs(settings.model_copy(update={"stage_bytes": 1 << 20}), tmp_path)


def entries(store: ArtifactStore) -> dict[str, int]:
    """All entries: keys and lengths."""
    return {found.key: found.size_bytes for found in store.list_objects(ROOT)}


def read(store: ArtifactStore, key: str) -> bytes:
    return store.client.get_object(Bucket=store.bucket, Key=key)["Body"].read()


def write(store: ArtifactStore, key: str, content: bytes) -> None:
    store.client.put_object(Bucket=store.bucket, Key=key, Body=content)


def runner_in(scratch: Path) -> int | None:
    """The number of the runner's process, if there is one."""
    for pid in processes_in(scratch.resolve()):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
        except OSError:
            continue
        if "worker.runner" in arguments:
            return pid
    return None


def test_a_killed_runner_is_not_missed(
    settings: WorkerSettings,
    database: Database,
    store: ArtifactStore,
    jobs: Jobs,
    tiny_folder: Path,
    text_file: Path,
    tmp_path: Path,
    wait_until: Callable[..., None],
) -> None:
    """kill -9 after scoring: the second attempt says that it took the scores, and removes the same layers."""
    long = {"windows": 40, "sequence_length": 128, "prompts": ["The fox"], "new_tokens": 512}
    job_id = jobs.submit(tiny_spec(tiny_folder, text_file, evaluation=long))
    scratch = tmp_path / "scratch"
    tools = Tools(
        settings.model_copy(update={"scratch": scratch, "retry_delay_seconds": 1}),
        database,
        store,
        threading.Event(),
    )
    first = threading.Thread(target=supervise, args=(tools, job_id))
    first.start()
    wait_until(lambda: jobs.read(job_id).stage in AFTER_SCORING)
    pid = runner_in(scratch)
    assert pid is not None, "the runner was quicker than the test"
    os.kill(pid, signal.SIGKILL)
    first.join(60)
    assert (jobs.read(job_id).state, jobs.read(job_id).attempt) == ("queued", 1)
    supervise(tools, job_id)
    assert (jobs.read(job_id).state, jobs.read(job_id).attempt) == ("succeeded", 2)
    lines = logs(jobs, job_id)
    assert (2, SCORES) in lines
    assert (1, SCORES) not in lines
    removed = [message for _, message in lines if message.startswith("removing layers")]
    assert len(removed) == 2
    assert removed[0] == removed[1]
    assert list(scratch.iterdir()) == []


def test_jobs_that_share_a_beginning_share_what_it_found(runs: Runs, spec: JobSpec) -> None:
    """The same again takes all; another repair takes the scores; both end as they would have alone."""
    assert runs.run(spec) == []
    alone = runs.tensors
    assert runs.run(spec) == [SCORES, SUMS]
    again = runs.tensors
    assert alone.keys() == again.keys()
    assert all(torch.equal(alone[name], again[name]) for name in alone)
    other = JobSpec.model_validate({**spec.model_dump(), "recovery": "linear_patch_diag"})
    assert runs.run(other) == [SCORES]


def test_what_is_torn_or_wrong_is_ignored_and_replaced(
    runs: Runs, store: ArtifactStore, spec: JobSpec, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry cut short, one with another key's content, one too long: computed anew, the same bits."""
    runs.run(spec)
    before, whole = runs.tensors, entries(store)
    (scores, scores_bytes), *sums = sorted(whole.items(), key=lambda item: item[1])
    assert len(sums) == 2
    content = {key: read(store, key) for key in whole}
    write(store, sums[0][0], content[sums[0][0]][:-9])
    write(store, sums[1][0], content[sums[0][0]])
    write(store, scores, bytes(runs.settings.stage_bytes + 1))
    with caplog.at_level(logging.WARNING):
        said = runs.run(spec)
    assert len([message for message in said if "damaged" in message]) == 2
    assert not {SCORES, SUMS} & set(said)
    assert "too large and ignored" in caplog.text
    assert all(torch.equal(before[name], tensor) for name, tensor in runs.tensors.items())
    assert entries(store) == whole
    assert scores_bytes == len(read(store, scores))
    assert runs.run(spec) == [SCORES, SUMS]


def test_private_jobs_of_two_owners_share_nothing(runs: Runs, store: ArtifactStore, spec: JobSpec) -> None:
    """Model and text on this machine's disk are private: another owner's job computes all of it anew."""
    one, other = uuid4(), uuid4()
    assert runs.run(spec, one) == []
    assert runs.run(spec, other) == []
    assert runs.run(spec, one) == [SCORES, SUMS]
    owners = [key.split("/")[1] for key in entries(store)]
    assert sorted(owners) == sorted([str(one)] * 3 + [str(other)] * 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where entries pass between the two sides."""
    (tmp_path / "stages").mkdir()
    return tmp_path / "stages"


def keeper_in(
    folder: Path,
    settings: WorkerSettings,
    *,
    limit: int = 1000,
    check: Callable[[], None] = lambda: None,
) -> StageKeeper:
    return StageKeeper(open_stages(settings, f"{ROOT}shared/subject/"), folder, limit, check)


def test_an_entry_goes_there_and_back(folder: Path, settings: WorkerSettings, store: ArtifactStore) -> None:
    """Under its prefix and key; what was taken is gone from the folder, what is not there is not found."""
    keeper = keeper_in(folder, settings)
    assert not keeper.fetch(KEY)
    (folder / KEY).write_bytes(b"sums")
    keeper.take(KEY)
    assert list(folder.iterdir()) == []
    assert entries(store) == {f"{ROOT}shared/subject/{KEY}/entry": 4}
    assert keeper.fetch(KEY)
    assert (folder / KEY).read_bytes() == b"sums"


def make_link(path: Path) -> None:
    """To a file that the worker can read and a user must not."""
    secret = path.parent.parent / "secret"
    secret.write_text("secret", encoding="utf-8")
    path.symlink_to(secret)


@pytest.mark.parametrize(
    "make",
    [make_link, os.mkfifo, Path.mkdir, lambda path: path.write_bytes(bytes(1001)), lambda _: None],
    ids=["link", "pipe", "folder", "too long", "nothing"],
)
def test_only_plain_files_of_bounded_length_are_taken(
    folder: Path, settings: WorkerSettings, store: ArtifactStore, make: Callable[[Path], object]
) -> None:
    """Whatever a hostile process leaves in the folder, nothing else of this machine reaches the store."""
    make(folder / KEY)
    keeper_in(folder, settings).take(KEY)
    assert entries(store) == {}
    assert list(folder.iterdir()) == []


def test_the_length_of_all_entries_is_bounded(
    folder: Path, settings: WorkerSettings, store: ArtifactStore
) -> None:
    """A process that offers without end fills no bucket."""
    keeper = keeper_in(folder, settings)
    for letter in "abc":
        (folder / (letter * 64)).write_bytes(bytes(400))
        keeper.take(letter * 64)
    assert sorted(entries(store).values()) == [400, 400]
    reader = keeper_in(folder, settings, limit=500)
    assert reader.fetch("a" * 64)
    assert not reader.fetch("b" * 64)


def test_a_store_that_is_away_is_only_a_miss(folder: Path, settings: WorkerSettings) -> None:
    """Nothing found, nothing kept, and no error: the work goes on."""
    away = settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:9"})
    keeper = keeper_in(folder, away)
    assert not keeper.fetch(KEY)
    (folder / KEY).write_bytes(b"sums")
    keeper.take(KEY)
    assert list(folder.iterdir()) == []


def test_an_attempt_that_is_to_stop_moves_nothing_more(
    folder: Path, settings: WorkerSettings, store: ArtifactStore
) -> None:
    """Not even the rest of a long entry; no unfinished upload is left of it."""
    answers = iter([None, StoppedError(StopReason.CANCELLED)])

    def check() -> None:
        answer = next(answers, StoppedError(StopReason.CANCELLED))
        if answer is not None:
            raise answer

    (folder / KEY).write_bytes(bytes(20 << 20))
    keeper = keeper_in(folder, settings, limit=1 << 30, check=check)
    with pytest.raises(StoppedError):
        keeper.take(KEY)
    assert entries(store) == {}
    uploads = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=ROOT)
    assert uploads.get("Uploads", []) == []


def test_old_entries_go_and_nothing_else(store: ArtifactStore) -> None:
    """By age; the artifacts beside them stay."""
    write(store, f"{ROOT}shared/subject/{KEY}/entry", b"sums")
    write(store, "jobs/one/1/model.safetensors", b"weights")
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key=f"{ROOT}shared/x/{KEY}/entry")
    assert sweep_stages(store, 3600) == 0
    assert len(entries(store)) == 1
    assert sweep_stages(store, -60) == 1
    assert entries(store) == {}
    assert [found.key for found in store.list_objects("jobs/one/")] == ["jobs/one/1/model.safetensors"]
    left = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=ROOT).get("Uploads", [])
    assert upload["UploadId"] not in [found["UploadId"] for found in left]
    store.delete_prefix("jobs/one/")


OWNER = UUID(int=7)
HUB = {"model": "owner/name", "layers": 2}


@pytest.mark.parametrize(
    ("changes", "scope"),
    [
        ({}, "shared"),
        ({"model": "an-alias"}, "shared"),
        ({"model": {"kind": "local", "path": "/m"}}, str(OWNER)),
        ({"calibration": {"dataset": {"kind": "local", "path": "/t"}}}, str(OWNER)),
    ],
)
def test_who_may_start_from_an_entry(changes: dict[str, object], scope: str) -> None:
    """All, where anyone can name model and text; otherwise the owner alone."""
    prefix = stages_prefix(JobSpec.model_validate(HUB | changes), OWNER)
    assert prefix.startswith(f"{ROOT}{scope}/")
    assert prefix.endswith("/")


def test_a_private_job_is_its_owners_alone() -> None:
    """For instance one that came with a token; without authentication, owners are all the same."""
    spec = JobSpec.model_validate(HUB)
    assert stages_prefix(spec, OWNER, private=True).startswith(f"{ROOT}{OWNER}/")
    assert stages_prefix(spec, None, private=True).startswith(f"{ROOT}unowned/")


def test_a_job_stays_within_its_model_and_text() -> None:
    """Whatever keys a hostile model's process makes up, jobs on other models never look there."""
    specs = [
        HUB,
        {**HUB, "model": "owner/other"},
        {**HUB, "model": "owner/name@main"},
        {**HUB, "calibration": {"dataset": "c4-train"}},
    ]
    prefixes = [stages_prefix(JobSpec.model_validate(fields), None) for fields in specs]
    assert len(set(prefixes)) == 4
    same = JobSpec.model_validate({**HUB, "recovery": "none", "evaluation": None, "layers": 1})
    assert stages_prefix(same, None) == prefixes[0]
