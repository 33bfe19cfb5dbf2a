"""The manifest of a job, from what its stages found."""

import math
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel

from ghosted_core.checkpoint.manifest import Manifest, PlanRecord, SourceRecord, probe
from ghosted_core.criteria import LayerScores
from ghosted_core.model.kinds import layer_kinds
from ghosted_core.plan import PruningPlan
from ghosted_core.recovery import Outcome
from ghosted_core.spec import JobSpec

if TYPE_CHECKING:
    from ghosted_core.pipeline import Loaded, Measured

PACKAGES = ("ghosted", "torch", "transformers", "tokenizers", "safetensors")


def manifest(
    spec: JobSpec,
    loaded: "Loaded",
    scores: LayerScores,
    plan: PruningPlan,
    outcomes: list[Outcome],
    model: PreTrainedModel,
    measured: "Measured",
) -> Manifest:
    """Everything but the files, which the writer adds."""
    texts = loaded.texts
    kinds = layer_kinds(loaded.model, loaded.family)
    public = spec.public()
    return Manifest(
        spec=public,
        spec_digest=spec.digest(),
        source=_source(loaded, public),
        plan=PlanRecord(
            removed=plan.removed,
            kept=plan.kept,
            boundaries=tuple((b.start, b.stop) for b in plan.boundaries),
            scores=asdict(scores),
        ),
        operators=tuple(getattr(model.config, "ghosted_operators", ())),
        layer_kinds=tuple(kinds[index] for index in plan.kept),
        fits=tuple(asdict(outcome.report) for outcome in outcomes),
        calibration=texts.calibration.description,
        evaluation=texts.evaluation.description if texts.evaluation is not None else None,
        metrics=_metrics(measured),
        generations=measured.generations,
        parameters=model.num_parameters(),
        dtype=str(model.dtype).removeprefix("torch."),
        probe=probe(model, model.config.get_text_config().vocab_size),
        versions=_versions(),
    )


def _source(loaded: "Loaded", public: JobSpec) -> SourceRecord:
    source = loaded.source
    return SourceRecord(
        reference=public.model.model_dump(mode="json"),
        commit=source.commit,
        fingerprint=source.fingerprint,
        architecture=type(loaded.model).__name__,
        layer_count=loaded.stream.layer_count,
        parameters=loaded.model.num_parameters(),
    )


def _metrics(measured: "Measured") -> dict[str, float | None]:
    """Figures by name; what is infinite or not a number has no JSON and becomes null."""
    metrics: dict[str, float | None] = {}
    for name, found in measured.perplexities.items():
        metrics[f"perplexity_{name}"] = _finite(found.value)
        metrics[f"nll_{name}"] = _finite(found.nll)
        metrics[f"nll_standard_error_{name}"] = _finite(found.standard_error)
    if {"dense", "pruned", "repaired"} <= measured.perplexities.keys():
        metrics["damage_ratio"] = _finite(damage_ratio({k: v.nll for k, v in measured.perplexities.items()}))
    return metrics


def damage_ratio(nll: dict[str, float]) -> float:
    """ln(ppl repaired / ppl dense) over ln(ppl pruned / ppl dense): 0 heals all, 1 nothing."""
    damage = nll["pruned"] - nll["dense"]
    return (nll["repaired"] - nll["dense"]) / damage if damage else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _versions() -> dict[str, str]:
    found: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
