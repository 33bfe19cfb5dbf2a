"""Jobs as they are found in a service that is at work, for tests and pictures of the dashboard."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, update

from ghosted_core.spec import JobSpec
from services.artifacts.manifest import Manifest, ManifestFile
from services.db.models import Job, Worker
from services.db.sessions import Database
from services.jobs import attempts, repository
from services.jobs.attempts import Fence, NewArtifact
from services.jobs.failures import Failure
from services.jobs.repository import NewJob
from services.jobs.rows import add_wake_up
from services.workers.repository import Beat, Device, record_beat

GIB = 1 << 30
MODEL = "smollm2-135m-instruct"
LAYERS = 30
PARAMETERS = 134_515_008
LAYER_PARAMETERS = 3_540_096
OPERATOR_PARAMETERS = 576 * 576
WORKER = "gpu-01:4711:9f3c"
OUT_OF_MEMORY = Failure(
    code="out_of_memory",
    message="The device has 23.6 GiB of memory; scoring needed 27.1 GiB.",
    advice="Use shorter calibration and evaluation windows, a smaller model or dtype bfloat16.",
    stage="score",
    attempt=1,
    retryable=False,
)


@dataclass(frozen=True)
class Scene:
    """Makes jobs of one key."""

    database: Database
    owner_id: UUID | None

    def queued(self, spec: Mapping[str, Any] | None = None, **labels: str) -> UUID:
        """A job that waits."""
        made = JobSpec.model_validate({"model": MODEL, "layers": 5, **(spec or {})})
        new = NewJob(made, deadline_seconds=21_600, owner_id=self.owner_id, labels=labels)
        with self.database.write() as session:
            job = repository.add(session, new)
            add_wake_up(session, job)
            return job.id

    def running(self, spec: Mapping[str, Any] | None = None, **labels: str) -> Fence:
        """A job that was just begun; returns the right to write to it."""
        job_id = self.queued(spec, **labels)
        with self.database.write() as session:
            claimed = attempts.claim(session, job_id, lease_seconds=3600, worker=WORKER)
        if claimed is None:
            raise LookupError(job_id)
        return claimed.fence

    def stage(self, fence: Fence, stage: str, done: int = 0, total: int = 65_536) -> None:
        """The job is so far in a stage."""
        with self.database.write() as session:
            attempts.record_stage(session, fence, stage, total=total)
            attempts.record_progress(session, fence, stage, done)

    def progress(self, fence: Fence, stage: str, done: int) -> None:
        """The job is so far in the stage that it is in."""
        with self.database.write() as session:
            attempts.record_progress(session, fence, stage, done)

    def finish_stages(self, fence: Fence, seconds: Mapping[str, float]) -> None:
        """The job has these stages behind it."""
        with self.database.write() as session:
            for stage, took in seconds.items():
                attempts.record_stage(session, fence, stage, total=65_536)
                told = {"stage": stage, "seconds": took, "peak_memory_bytes": 3 * GIB}
                attempts.record_event(session, fence, "stage_finished", told)

    def choose_layers(self, fence: Fence, removed: Sequence[int], **scores: Any) -> None:
        """The job has decided which layers go."""
        told = {"removed": list(removed), "layer_count": LAYERS, "scores": scores}
        with self.database.write() as session:
            attempts.record_event(session, fence, "layers_chosen", told)

    def log(self, fence: Fence, message: str) -> None:
        """The job said so."""
        with self.database.write() as session:
            attempts.record_event(session, fence, "log", {"level": "info", "message": message})

    def measure(self, fence: Fence, **metrics: float) -> None:
        """The job has these figures."""
        with self.database.write() as session:
            for name, value in metrics.items():
                attempts.record_metric(
                    session, fence, name, value, {"dataset": "boolq-passages", "windows": 16}
                )

    def succeed(self, fence: Fence, removed: Sequence[int], metrics: Mapping[str, float]) -> None:
        """The job has succeeded without these layers."""
        self.measure(fence, **metrics)
        cuts = sum(layer - 1 not in removed for layer in removed)
        parameters = PARAMETERS - len(removed) * LAYER_PARAMETERS + cuts * OPERATOR_PARAMETERS
        size_bytes = 2 * parameters
        kept = [layer for layer in range(LAYERS) if layer not in removed]
        summary = {
            "source": {"layer_count": LAYERS, "parameters": PARAMETERS},
            "plan": {"removed": list(removed), "kept": kept},
            "parameters": parameters,
            "metrics": dict(metrics),
        }
        files = (ManifestFile(path="model.safetensors", size_bytes=size_bytes, sha256="0" * 64),)
        manifest = Manifest(files=files, summary=summary)
        artifact = NewArtifact(f"jobs/{fence.job_id}/1/", manifest.model_dump(mode="json"), size_bytes)
        with self.database.write() as session:
            attempts.finish_succeeded(session, fence, artifact)

    def fail(self, fence: Fence, failure: Failure = OUT_OF_MEMORY) -> None:
        """The job has failed."""
        with self.database.write() as session:
            attempts.finish_failed(session, fence, failure)

    def shift(self, job_id: UUID, **earlier: timedelta) -> None:
        """These times of the job lie so much further back."""
        values = {name: func.now() - by for name, by in earlier.items()}
        with self.database.write() as session:
            session.execute(update(Job).where(Job.id == job_id).values(values))


def beat(database: Database, worker: str = WORKER, host: str = "gpu-01") -> None:
    """A worker is there that takes every job."""
    device = Device("cuda", "NVIDIA L4", 24 * GIB)
    with database.write() as session:
        record_beat(
            session,
            Beat(worker, host, 4711, "0.1.0", (device,), "medium", 24 * GIB, 20 * GIB, 300 * GIB),
        )


def furnish(database: Database, owner_id: UUID | None) -> Mapping[str, UUID]:
    """A service on an afternoon: one job of each kind, by name."""
    scene = Scene(database, owner_id)
    beat(database)
    beat(database, "gpu-02:812:77aa", "gpu-02")
    found = {"succeeded": _succeeded(scene), "shortgpt": _shortgpt(scene), "failed": _failed(scene)}
    found |= {"cancelled": _cancelled(scene), "stale": _stale(scene), "running": _running(scene)}
    found["queued"] = scene.queued({"layers": "25%", "strategy": "taylor"}, team="search")
    found["next"] = scene.queued({"model": "Qwen/Qwen3-0.6B", "layers": 7, "recovery": "prune_and_comp"})
    for name, minutes in (("queued", 4), ("next", 2)):
        scene.shift(found[name], created_at=timedelta(minutes=minutes))
    return found


def freshen(database: Database, found: Mapping[str, UUID]) -> None:
    """The workers of `furnish` and the job that runs were heard of just now."""
    seen = {"last_seen_at": func.now() - timedelta(seconds=2)}
    with database.write() as session:
        session.execute(update(Worker).values(seen))
        session.execute(update(Job).where(Job.id == found["running"]).values(seen))


def _succeeded(scene: Scene) -> UUID:
    fence = scene.running(team="search", run="baseline")
    scene.finish_stages(fence, {"load": 4.1, "score": 31.5, "calibrate": 44.0, "solve": 2.2})
    scene.finish_stages(fence, {"patch": 0.4, "evaluate": 73.8, "save": 3.9})
    perplexity = {"perplexity_dense": 18.42, "perplexity_pruned": 61.07, "perplexity_repaired": 27.35}
    scene.succeed(fence, range(21, 26), {**perplexity, "damage_ratio": 0.33})
    hours = timedelta(hours=3)
    scene.shift(
        fence.job_id,
        created_at=hours,
        started_at=hours - timedelta(seconds=12),
        finished_at=hours - timedelta(seconds=175),
    )
    return fence.job_id


def _shortgpt(scene: Scene) -> UUID:
    fence = scene.running({"strategy": "shortgpt", "layers": 8}, team="search")
    perplexity = {"perplexity_dense": 18.42, "perplexity_pruned": 412.6, "perplexity_repaired": 58.9}
    scene.succeed(fence, (3, 5, 9, 11, 17, 22, 23, 26), perplexity)
    hours = timedelta(hours=2)
    scene.shift(
        fence.job_id,
        created_at=hours,
        started_at=hours - timedelta(seconds=160),
        finished_at=hours - timedelta(seconds=410),
    )
    return fence.job_id


def _failed(scene: Scene) -> UUID:
    fence = scene.running({"model": "Qwen/Qwen3-8B", "layers": "25%", "strategy": "sleb"}, team="chat")
    scene.stage(fence, "score", 12_288)
    scene.fail(fence)
    minutes = timedelta(minutes=95)
    scene.shift(
        fence.job_id,
        created_at=minutes,
        started_at=minutes - timedelta(seconds=9),
        finished_at=minutes - timedelta(seconds=71),
    )
    return fence.job_id


def _cancelled(scene: Scene) -> UUID:
    fence = scene.running({"strategy": "angular", "layers": 12})
    with scene.database.write() as session:
        attempts.finish_cancelled(session, fence)
    minutes = timedelta(minutes=52)
    scene.shift(
        fence.job_id,
        created_at=minutes,
        started_at=minutes - timedelta(seconds=3),
        finished_at=minutes - timedelta(seconds=33),
    )
    return fence.job_id


def _stale(scene: Scene) -> UUID:
    fence = scene.running({"strategy": "magnitude", "layers": 6}, team="chat")
    scene.stage(fence, "calibrate", 20_480)
    minutes = timedelta(minutes=11)
    scene.shift(
        fence.job_id,
        created_at=minutes,
        started_at=minutes - timedelta(seconds=40),
        stage_started_at=minutes - timedelta(seconds=80),
        last_seen_at=timedelta(seconds=94),
    )
    return fence.job_id


def _running(scene: Scene) -> UUID:
    fence = scene.running({"strategy": "streamline", "layers": 5}, team="search", run="again")
    scene.finish_stages(fence, {"load": 4.0, "score": 30.2, "calibrate": 43.1, "solve": 2.2, "patch": 0.4})
    meaning = "mean cosine of the states that enter and leave the run"
    candidates = [[start, 0.6 + 0.38 * math.sin(start / 13.4)] for start in range(1, LAYERS - 4)]
    scene.choose_layers(
        fence, range(21, 26), criterion="streamline", meaning=meaning, best="highest", candidates=candidates
    )
    scene.stage(fence, "evaluate", 40_960, 98_304)
    scene.measure(fence, perplexity_dense=18.42, perplexity_pruned=61.07)
    scene.shift(
        fence.job_id,
        created_at=timedelta(seconds=160),
        started_at=timedelta(seconds=131),
        stage_started_at=timedelta(seconds=34),
    )
    return fence.job_id
