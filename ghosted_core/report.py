"""The manifest of a job, from what its stages found."""

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.checkpoint.licence import source_licence
from ghosted_core.checkpoint.manifest import Manifest, PlanRecord, SourceRecord, probe
from ghosted_core.criteria import LayerScores
from ghosted_core.distillation.finetuning import Finetuned
from ghosted_core.evaluate.suite import Measured
from ghosted_core.gate import Verdict
from ghosted_core.model.kinds import layer_kinds
from ghosted_core.plan import PruningPlan
from ghosted_core.recovery import Outcome, RecoveryOperator
from ghosted_core.spec import JobSpec

if TYPE_CHECKING:
    from ghosted_core.pipeline import Loaded

PACKAGES = ("ghosted", "torch", "transformers", "tokenizers", "safetensors", "lm_eval")
SPECTRUM_POINTS = 128


def manifest(
    spec: JobSpec,
    loaded: "Loaded",
    scores: LayerScores,
    plan: PruningPlan,
    outcomes: list[Outcome],
    model: PreTrainedModel,
    measured: Measured,
    judged: Verdict,
    *,
    trained: Finetuned | None = None,
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
        fits=tuple(_fit(outcome, trained) for outcome in outcomes),
        calibration=texts.calibration.description,
        evaluation=texts.evaluation.description if texts.evaluation is not None else None,
        corpora={name: windows.description for name, windows in texts.corpora.items()},
        finetune=None if trained is None else _plain(trained.report),
        metrics={name: _finite(value) for name, value in measured.figures.items()},
        details={metric.name: _plain(metric.detail) for metric in measured.metrics},
        gate=_gate(judged) if spec.evaluation is not None else None,
        tasks_complete=measured.complete,
        generations=_generations(measured),
        parameters=model.num_parameters(),
        dtype=str(model.dtype).removeprefix("torch."),
        probe=probe(model, model.config.get_text_config().vocab_size),
        versions=_versions(),
    )


def _source(loaded: "Loaded", public: JobSpec) -> SourceRecord:
    source = loaded.source
    licence = source_licence(source)
    return SourceRecord(
        reference=public.model.model_dump(mode="json"),
        commit=source.commit,
        fingerprint=source.fingerprint,
        architecture=type(loaded.model).__name__,
        layer_count=loaded.stream.layer_count,
        parameters=loaded.model.num_parameters(),
        licence=licence.name if licence is not None else None,
        licence_file=licence.file if licence is not None else None,
    )


def _fit(outcome: Outcome, trained: Finetuned | None) -> dict[str, Any]:
    """The report of a repair, and the singular values of its operator M, as fitted and as trained."""
    found = asdict(outcome.report)
    if isinstance(outcome, RecoveryOperator):
        found["spectrum"] = spectrum(outcome.correction)
        after = outcome.correction if trained is None else trained.repair.corrections[outcome.boundary]
        # Where other weights trained, the operator is still the same.
        if after is not outcome.correction:
            found["spectrum_finetuned"] = spectrum(after)
    return found


def spectrum(correction: Tensor) -> dict[str, list[float]]:
    """Singular values of M, the largest first: at most SPECTRUM_POINTS of them, evenly over log(rank)."""
    values = torch.linalg.svdvals(correction)
    count = len(values)
    places = torch.logspace(0, math.log10(count), min(count, SPECTRUM_POINTS)).round().int()
    ranks = sorted({min(max(rank, 1), count) for rank in places.tolist()})
    return {
        "rank": [float(rank) for rank in ranks],
        "singular_value": [float(values[rank - 1]) for rank in ranks],
    }


def _gate(judged: Verdict) -> dict[str, Any]:
    return {"passed": judged.passed, "checks": [asdict(check) for check in judged.checks]}


def _generations(measured: Measured) -> dict[str, dict[str, str]]:
    return {name: {one.prompt: one.text for one in found} for name, found in measured.continuations.items()}


def _plain(value: Any) -> Any:
    """The same as JSON has it: what is infinite or not a number has none and becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _finite(value) if isinstance(value, float) else value


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
