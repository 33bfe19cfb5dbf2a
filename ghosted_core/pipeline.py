"""One job, from a model to a patched checkpoint. The command line and the worker both run this."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core import report
from ghosted_core.calibration import Calibrated, repair
from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.checkpoint.load import load_config, load_model, load_tokenizer
from ghosted_core.checkpoint.manifest import Manifest
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.checkpoint.write import require_free, require_space, unique_tensors, write_checkpoint
from ghosted_core.criteria import criterion_for, plan_of
from ghosted_core.data import Windows, batches
from ghosted_core.describe import describe
from ghosted_core.errors import InvalidSpecError, NonFiniteError
from ghosted_core.evaluate.generation import continuations
from ghosted_core.evaluate.perplexity import Perplexity, perplexities
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.admission import check_configuration, check_dtype
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import SUPPORTED, Family, family_of
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import Logged, MetricMeasured, Recorder, Stage, StageScope, stage
from ghosted_core.recovery import Outcome, RecoveryOperator, check_applicable
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.room import require_room
from ghosted_core.scoring import score_layers
from ghosted_core.spec import JobSpec
from ghosted_core.stage_cache import NoStageCache, StageCache
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import circumstances
from ghosted_core.stage_cache.scores import recalled
from ghosted_core.texts import Texts, read_texts


@dataclass(frozen=True)
class RunOptions:
    """What a run needs to know and the result does not depend on.

    `scratch` is where repairs keep activations that do not fit into memory, and clean up afterwards;
    None: beside `out`. `stages` is where a run finds what earlier ones found, and leaves its own.
    """

    out: Path
    cache: Path
    scratch: Path | None = None
    device: str = "cpu"
    hub_token: str | None = field(default=None, repr=False)
    catalog: Catalog = field(default_factory=builtin_catalog)
    stages: StageCache = field(default_factory=NoStageCache)


@dataclass(frozen=True)
class JobResult:
    """A finished checkpoint and what its manifest says."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Loaded:
    """The unpruned model with all that a job reads."""

    source: ModelSource
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    texts: Texts

    @property
    def family(self) -> Family:
        """What is known of the model's architecture."""
        return family_of(self.model.config.model_type)

    @property
    def stream(self) -> ResidualStream:
        """The model's residual stream."""
        return ResidualStream(self.model, self.family)


@dataclass(frozen=True)
class Measured:
    """What evaluation found, by variant: dense, pruned, repaired."""

    perplexities: dict[str, Perplexity] = field(default_factory=dict)
    generations: dict[str, dict[str, str]] = field(default_factory=dict)


def compress(spec: JobSpec, options: RunOptions, recorder: Recorder) -> JobResult:
    """Run the job `spec` and leave its checkpoint at `options.out`.

    Nothing is left at `options.out` unless the whole job succeeds.

    Raises:
        GhostedError: the class says what went wrong, `hint` what to try.
    """
    require_free(options.out)
    meter = ProcessMeter(torch.device(options.device))
    with stage(Stage.LOAD, recorder, meter, unit="steps", total=3) as scope:
        loaded = _load(spec, options, recorder, scope)
    keeping = Keeping(options.stages, circumstances(loaded.source, loaded.model), recorder)
    scores = score_layers(spec, loaded.model, loaded.texts.calibration, recorder, meter, recalled(keeping))
    plan = plan_of(scores, loaded.stream.layer_count)
    recorder.record(Logged(f"removing layers {list(plan.removed)}"))
    check_applicable(spec.recovery, loaded.family, plan)
    job = Calibrated(loaded.model, loaded.texts, options.scratch or options.out.parent, keeping)
    outcomes = repair(spec.recovery, job, plan, recorder, meter)
    with stage(Stage.PATCH, recorder, meter, unit="steps", total=1) as scope:
        variants = _variants(loaded, plan, outcomes)
        require_space(options.out, _weight_bytes(variants["repaired"]))
        scope.advance(1)
    measured = _evaluate(spec, loaded, variants, recorder, meter)
    require_finite(measured)
    with stage(Stage.SAVE, recorder, meter, unit="steps", total=1) as scope:
        manifest = report.manifest(spec, loaded, scores, plan, outcomes, variants["repaired"], measured)
        manifest = write_checkpoint(variants["repaired"], loaded.source, manifest, options.out)
        scope.advance(1)
    return JobResult(path=options.out, manifest=manifest)


def _load(spec: JobSpec, options: RunOptions, recorder: Recorder, scope: StageScope) -> Loaded:
    def log(message: str) -> None:
        recorder.record(Logged(message))

    source = resolve(
        spec.model,
        catalog=options.catalog,
        cache=options.cache,
        hub_token=options.hub_token,
        log=log,
        supported=SUPPORTED,
    )
    # No weight is read for a job that cannot be.
    config = load_config(source)
    check_fit(spec, config)
    require_room(spec, describe(source, config), options.device, options.out, log)
    scope.advance(1)
    model = load_model(source, dtype=spec.dtype, device=options.device)
    scope.advance(1)
    tokenizer = load_tokenizer(source)
    texts = read_texts(
        spec,
        tokenizer,
        vocab_size=model.config.get_text_config().vocab_size,
        catalog=options.catalog,
        cache=options.cache,
        log=log,
    )
    scope.advance(1)
    return Loaded(source, model, tokenizer, texts)


def check_fit(spec: JobSpec, config: PreTrainedConfig) -> None:
    """Return unless the job is known to fail from the model's configuration.

    Raises:
        UnsupportedModelError: layers of this model cannot be removed.
        InvalidSpecError: what is asked for does not fit this model.
    """
    family = family_of(config.model_type)
    check_configuration(config, family)
    check_dtype(spec.dtype, config, family)
    check_applicable(spec.recovery, family)
    text = config.get_text_config()
    layer_count = text.num_hidden_layers
    count = spec.removal_count(layer_count)
    if count >= layer_count:
        raise InvalidSpecError(
            f"'layers' is {count}, but the model has only {layer_count} layers.",
            advice=f"Remove between 1 and {layer_count - 1} layers.",
        )
    criterion_for(spec.strategy).candidates(count, layer_count)
    limit = getattr(text, "max_position_embeddings", None)
    wanted = max(spec.calibration.sequence_length, (spec.evaluation and spec.evaluation.sequence_length) or 0)
    if limit is not None and wanted > limit:
        raise InvalidSpecError(
            f"'sequence_length' is {wanted}, but the model reads at most {limit} tokens.",
            advice=f"Set 'sequence_length' to {limit} or less.",
        )


def _variants(loaded: Loaded, plan: PruningPlan, outcomes: list[Outcome]) -> dict[str, PreTrainedModel]:
    """The models to compare; they share their weights. Without a repair, pruned and repaired are one."""
    dense = loaded.model
    pruned = pruned_model(dense, plan)
    if not outcomes:
        return {"dense": dense, "pruned": pruned, "repaired": pruned}
    corrections = {o.boundary: o.correction for o in outcomes if isinstance(o, RecoveryOperator)}
    replaced = folded_tensors(dense, loaded.family, plan, outcomes)
    repaired = repaired_model(dense, plan, corrections, replaced)
    return {"dense": dense, "pruned": pruned, "repaired": repaired}


def _evaluate(
    spec: JobSpec,
    loaded: Loaded,
    variants: dict[str, PreTrainedModel],
    recorder: Recorder,
    meter: ProcessMeter,
) -> Measured:
    measured = Measured()
    windows = loaded.texts.evaluation
    if spec.evaluation is None or windows is None:
        return measured
    distinct = {name: model for name, model in variants.items() if not _is_repeat(name, variants)}
    with stage(Stage.EVALUATE, recorder, meter, total=len(distinct) * windows.tokens.numel()) as scope:
        found = perplexities(loaded.model, distinct, batches(windows), scope.advance)
        for name, model in distinct.items():
            measured.perplexities[name] = found[name]
            metric = MetricMeasured(f"perplexity_{name}", found[name].value, _detail(found[name], windows))
            recorder.record(metric)
            measured.generations[name] = continuations(
                model, loaded.tokenizer, spec.evaluation.prompts, spec.evaluation.new_tokens
            )
    return measured


def require_finite(measured: Measured) -> None:
    """Return if every perplexity is a number: a model that has none is no result.

    Raises:
        NonFiniteError: one is not; the message names the metric.
    """
    for name, found in measured.perplexities.items():
        for metric, value in (("nll", found.nll), ("perplexity", found.value)):
            if not math.isfinite(value):
                raise NonFiniteError(f"The metric {metric}_{name} is {value}, so this model is of no use.")


def _is_repeat(name: str, variants: dict[str, PreTrainedModel]) -> bool:
    """Whether this is the unrepaired model under its second name."""
    return name == "repaired" and variants["repaired"] is variants["pruned"]


def _detail(found: Perplexity, windows: Windows) -> dict[str, Any]:
    return {"standard_error_nll": found.standard_error, **windows.description}


def _weight_bytes(model: PreTrainedModel) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in unique_tensors(model).values())
