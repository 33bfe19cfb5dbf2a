"""Results as real jobs leave them: figures with their details, an artifact, its report in the store."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from services.artifacts.manifest import Manifest, ManifestFile
from services.artifacts.storage import ArtifactStore
from services.jobs import attempts
from services.jobs.attempts import Fence, NewArtifact
from services.jobs.failures import Failure
from tests.dashboard.scenes import LAYERS, Scene

SECONDS = {
    "load": 4.1,
    "score": 31.5,
    "calibrate": 44.0,
    "solve": 2.2,
    "patch": 0.4,
    "evaluate": 73.8,
    "save": 3.9,
    "upload": 2.6,
    "verify": 6.1,
}
TEXT = {"dataset": "boolq-passages", "windows": 16, "length": 512, "fingerprint": "f3807df3"}
TASK = {"task": "boolq", "standard_error": 0.0087}
WAITED = timedelta(seconds=12)
GATED = {"gate": [{"metric": "perplexity", "max_ratio": 1.2}], "on_miss": "keep"}
MISSED = Failure("quality_gate", "perplexity is 27.35 (dense 18.42).", "Remove fewer layers.", "save")
PROMPTS = ("Water boils when", "The capital of France is")
TEXTS = {
    "dense": "it reaches a temperature of 100 degrees Celsius at sea level.",
    "pruned": "it it the the of of of water water water",
    "repaired": "the temperature reaches about 100 degrees and the pressure is normal.",
}
SPEEDS = {"dense": 10.0, "pruned": 12.0, "repaired": 11.8}
CURVE = ({"step": 0, "held_out_kl": 0.5}, {"step": 8, "held_out_kl": 0.3, "loss": 0.4})


@dataclass(frozen=True)
class Result:
    """What a job finds; every text in it may be replaced by a hostile one."""

    removed: Sequence[int] = (21, 22, 23, 24, 25)
    perplexities: tuple[float, float, float] = (18.42, 61.07, 27.35)
    accuracies: tuple[float, float, float] = (0.612, 0.401, 0.563)
    file_bytes: int = 234_292_608
    text: Mapping[str, Any] = field(default_factory=lambda: dict(TEXT))
    texts: Mapping[str, str] = field(default_factory=lambda: dict(TEXTS))
    prompts: Sequence[str] = PROMPTS
    curve: Sequence[Mapping[str, Any]] = ()
    tasks_complete: bool = True
    meaning: str = "angle between the states that enter and leave the run, averaged over tokens"

    @property
    def kept(self) -> list[int]:
        """The layers that stay."""
        return [layer for layer in range(LAYERS) if layer not in self.removed]

    @property
    def summary(self) -> dict[str, Any]:
        """What the artifact's row says of it."""
        scores = [[layer, 0.2 + 0.6 * math.sin(layer / 9.5) ** 2] for layer in range(LAYERS)]
        return {
            "source": {
                "reference": {"kind": "catalog", "alias": "smollm2-135m-instruct"},
                "architecture": "LlamaForCausalLM",
                "layer_count": LAYERS,
                "parameters": 134_515_008,
            },
            "plan": {
                "removed": list(self.removed),
                "kept": self.kept,
                "boundaries": self.runs,
                "scores": {
                    "criterion": "streamline",
                    "meaning": self.meaning,
                    "best": "highest",
                    "candidates": scores,
                    "removed": list(self.removed),
                },
            },
            "parameters": 134_515_008 - 3_540_096 * len(self.removed),
            "dtype": "bfloat16",
            "metrics": {},
            **({} if self.tasks_complete else {"tasks_complete": False}),
            "generations": {name: dict.fromkeys(self.prompts, text) for name, text in self.texts.items()},
            "versions": {"torch": "2.13.0"},
        }

    @property
    def runs(self) -> list[list[int]]:
        """Removed runs [start, stop)."""
        starts = [layer for layer in self.removed if layer - 1 not in self.removed]
        stops = [layer + 1 for layer in self.removed if layer + 1 not in self.removed]
        return [list(run) for run in zip(starts, stops, strict=True)]

    @property
    def report(self) -> dict[str, Any]:
        """What report.json holds beside the summary."""
        trained = {"finetune": {"curve": self.curve}} if self.curve else {}
        return {"report": 1, **self.summary, **trained, "fits": [fit(*run) for run in self.runs]}


def fit(start: int, stop: int) -> dict[str, Any]:
    """The fit of a boundary."""
    ranks = sorted({round(576 ** (place / 60)) for place in range(61)})
    return {
        "boundary": {"start": start, "stop": stop},
        "method": "cholesky",
        "tokens": 65_536,
        "held_out_tokens": 8_192,
        "relative_residual": 0.4123,
        "held_out_relative_residual": 0.4391,
        "weighting": "uniform",
        "fit": "dense",
        "rank": 576,
        "condition": 1.4853e6,
        "ridge": 1e-6,
        "correction_norm": 15.16,
        "symmetric_share": 0.7327,
        "antisymmetric_share": 0.6805,
        "detail": {},
        "spectrum": {
            "rank": [float(rank) for rank in ranks],
            "singular_value": [12.0 * (start + 1) ** 0.1 / rank**0.8 for rank in ranks],
        },
    }


def measured(result: Result) -> dict[str, tuple[float, dict[str, Any]]]:
    """Figures by name, each with its detail."""
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    for name, perplexity, accuracy in zip(TEXTS, result.perplexities, result.accuracies, strict=True):
        found[f"perplexity_{name}"] = (perplexity, {**result.text, "standard_error_nll": 0.011})
        found[f"acc_boolq_{name}"] = (accuracy, dict(TASK))
        found[f"decode_tokens_per_second_{name}"] = (SPEEDS[name], {"rounds": 5})
        found[f"peak_memory_bytes_{name}"] = (3e9 / SPEEDS[name], {"device": "cpu"})
        found[f"distinct_2_{name}"] = (0.8, {"prompts": 2, "new_tokens": 24})
    return found


def succeeded(scene: Scene, store: ArtifactStore, folder: Path, result: Result, **spec: Any) -> UUID:
    """A job that has succeeded, with its report in the store."""
    fence = scene.running(spec)
    work_through(scene, fence, result)
    with scene.database.write() as session:
        attempts.finish_succeeded(session, fence, stored(store, folder, fence, result))
    took = timedelta(seconds=sum(SECONDS.values()))
    scene.shift(fence.job_id, created_at=took + WAITED, started_at=took)
    return fence.job_id


def kept_in_spite(scene: Scene, store: ArtifactStore, folder: Path, result: Result, **spec: Any) -> UUID:
    """A job whose result missed its gate and was kept all the same."""
    fence = scene.running({"evaluation": GATED, **spec})
    work_through(scene, fence, result)
    with scene.database.write() as session:
        attempts.finish_failed(session, fence, MISSED, kept=stored(store, folder, fence, result))
    return fence.job_id


def work_through(scene: Scene, fence: Fence, result: Result) -> None:
    """The job has all of its stages behind it, with figures and lines of its log."""
    scene.finish_stages(fence, SECONDS)
    with scene.database.write() as session:
        for name, (value, detail) in measured(result).items():
            attempts.record_metric(session, fence, name, value, detail)
        for line in ("removing layers 21 to 25", "condition 1.5e+06 at boundary 21"):
            attempts.record_event(session, fence, "log", {"level": "info", "message": line})


def stored(store: ArtifactStore, folder: Path, fence: Fence, result: Result) -> NewArtifact:
    """The artifact, of which the report alone lies in the store."""
    content = json.dumps(result.report).encode()
    (folder / "report.json").write_bytes(content)
    prefix = f"jobs/{fence.job_id}/{fence.attempt}/"
    store.upload(folder / "report.json", f"{prefix}report.json")
    digest = hashlib.sha256(content).hexdigest()
    files = (
        ManifestFile(path="config.json", size_bytes=812, sha256="1" * 64),
        ManifestFile(path="model.safetensors", size_bytes=result.file_bytes, sha256="0" * 64),
        ManifestFile(path="modeling_ghosted.py", size_bytes=3_201, sha256="2" * 64),
        ManifestFile(path="report.json", size_bytes=len(content), sha256=digest),
        ManifestFile(path="tokenizer.json", size_bytes=2_104_556, sha256="3" * 64),
    )
    manifest = Manifest(files=files, summary=result.summary)
    return NewArtifact(prefix, manifest.model_dump(mode="json"), manifest.total_bytes, keep_days=30)


def finished(scene: Scene, store: ArtifactStore, folder: Path) -> dict[str, UUID]:
    """Jobs with all that a result has, by name, for pictures."""
    shortgpt = Result((3, 5, 9, 11, 17, 22, 23, 26), (18.42, 412.6, 58.9), (0.612, 0.377, 0.49), 210_000_000)
    mild = Result((20, 21, 22), (18.42, 29.1, 21.2), (0.612, 0.55, 0.6), 249_000_000)
    plain = Result((20, 21, 22), (18.42, 29.1, 25.2), (0.612, 0.55, 0.58), 250_000_000)
    return {
        "plain": succeeded(scene, store, folder, plain, layers=3, recovery="prune_and_comp"),
        "mild": succeeded(scene, store, folder, mild, layers=3),
        "shortgpt": succeeded(scene, store, folder, shortgpt, strategy="shortgpt", layers=8),
        "succeeded": succeeded(scene, store, folder, Result(), layers=5),
    }
