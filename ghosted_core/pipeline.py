"""One job, from a model to a patched checkpoint. The command line and the worker both run this."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core import report
from ghosted_core.calibration import Calibrated, repair
from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.checkpoint.load import load_config, load_model, load_tokenizer
from ghosted_core.checkpoint.manifest import Manifest
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.checkpoint.write import require_free, require_space, write_checkpoint
from ghosted_core.criteria import criterion_for, plan_of
from ghosted_core.describe import describe
from ghosted_core.distillation.finetuning import finetune
from ghosted_core.distillation.student import check_trainable
from ghosted_core.errors import InvalidSpecError, NonFiniteError
from ghosted_core.evaluate.latency import weight_bytes
from ghosted_core.evaluate.tasks import TaskPlace, check_tasks
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.admission import check_configuration, check_dtype
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import SUPPORTED, Family, family_of
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import PruningPlan
from ghosted_core.quality import FINETUNED, Candidates, Repair, evaluate, verdict
from ghosted_core.recorder import LayersChosen, Logged, Recorder, Stage, StageScope, stage
from ghosted_core.recovery import Outcome, RecoveryOperator, check_applicable
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.report_html import report_files
from ghosted_core.room import require_room
from ghosted_core.scoring import score_layers
from ghosted_core.spec import JobSpec
from ghosted_core.stage_cache import NoStageCache, StageCache
from ghosted_core.stage_cache.choices import noting
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import circumstances
from ghosted_core.stage_cache.scores import recalled
from ghosted_core.texts import Texts, read_texts


@dataclass(frozen=True)
class RunOptions:
    """What a run needs to know and the result does not depend on.

    `scratch` is where repairs keep activations that do not fit into memory, and clean up afterwards;
    None: beside `out`. `stages` is where a run finds what earlier ones found, and leaves its own.
    `task_data` is a folder with the items of benchmark tasks.
    """

    out: Path
    cache: Path
    scratch: Path | None = None
    device: str = "cpu"
    hub_token: str | None = field(default=None, repr=False)
    task_data: Path | None = None
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


def compress(spec: JobSpec, options: RunOptions, recorder: Recorder) -> JobResult:
    """Run the job `spec` and leave its checkpoint at `options.out`.

    Nothing is left at `options.out` unless the whole job succeeds, but for a checkpoint that missed the
    spec's gate and is to be kept: it is there when QualityGateError is raised, and its manifest says so.

    Raises:
        QualityGateError: the result is worse than the spec's gate allows, or a metric is not finite.
        GhostedError: the class says what went wrong, `hint` what to try.
    """
    require_free(options.out)
    meter = ProcessMeter(torch.device(options.device))
    if (wanted := spec.evaluation) is not None and wanted.tasks:
        check_tasks(wanted.tasks, _task_place(options), wanted.bounded_of_tasks)
    with stage(Stage.LOAD, recorder, meter, unit="steps", total=3) as scope:
        loaded = _load(spec, options, recorder, scope)
    keeping = Keeping(options.stages, circumstances(loaded.source, loaded.model), recorder)
    recall = noting(recalled(keeping), spec, options.catalog, options.stages)
    scores = score_layers(spec, loaded.model, loaded.texts.calibration, recorder, meter, recall)
    plan = plan_of(scores, loaded.stream.layer_count)
    recorder.record(Logged(f"removing layers {list(plan.removed)}"))
    recorder.record(LayersChosen(plan.removed, plan.layer_count, asdict(scores)))
    check_applicable(spec.recovery, loaded.family, plan)
    check_trainable(spec.finetune, loaded.model, plan)
    job = Calibrated(loaded.model, loaded.texts, options.scratch or options.out.parent, keeping)
    outcomes = repair(spec.recovery, job, plan, recorder, meter)
    with stage(Stage.PATCH, recorder, meter, unit="steps", total=1) as scope:
        candidates = _candidates(loaded, plan, outcomes)
        require_space(options.out, weight_bytes(candidates.variants["repaired"]))
        scope.advance(1)
    trained = None
    if spec.finetune is not None:
        trained = finetune(spec.finetune, job, plan, candidates.repair, recorder, meter)
        candidates = _with_trained(candidates, trained.repair)
    result = candidates.variants[candidates.artifact]
    measured = evaluate(spec, candidates, _task_place(options), recorder, meter)
    judged = verdict(spec.evaluation, measured, candidates.artifact)
    if spec.evaluation is not None and spec.evaluation.on_miss == "withhold" and not judged.passed:
        raise judged.error()
    with stage(Stage.SAVE, recorder, meter, unit="steps", total=1) as scope:
        try:
            manifest = report.manifest(
                spec, loaded, scores, plan, outcomes, result, measured, judged, trained=trained
            )
        except NonFiniteError as error:
            if judged.passed:
                raise
            # Nothing can be kept, and the gate says more of why.
            raise judged.error() from error
        documents = report_files(manifest)
        manifest = write_checkpoint(result, loaded.source, manifest, options.out, documents)
        scope.advance(1)
    if not judged.passed:
        raise judged.error()
    return JobResult(path=options.out, manifest=manifest)


def _task_place(options: RunOptions) -> TaskPlace:
    return TaskPlace(options.task_data, options.scratch or options.out.parent)


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
            field="layers",
        )
    criterion_for(spec.strategy).candidates(count, layer_count)
    limit = getattr(text, "max_position_embeddings", None)
    field, wanted = spec.longest_window
    if limit is not None and wanted > limit:
        raise InvalidSpecError(
            f"'sequence_length' is {wanted}, but the model reads at most {limit} tokens.",
            advice=f"Set 'sequence_length' to {limit} or less.",
            field=field,
        )


def _candidates(loaded: Loaded, plan: PruningPlan, outcomes: list[Outcome]) -> Candidates:
    """The models to compare; they share their weights. Without a repair, pruned and repaired are one."""
    dense = loaded.model
    pruned = repaired = pruned_model(dense, plan)
    repair = Repair({}, {})
    if outcomes:
        corrections = {o.boundary: o.correction for o in outcomes if isinstance(o, RecoveryOperator)}
        repair = Repair(corrections, folded_tensors(dense, loaded.family, plan, outcomes))
        repaired = repaired_model(dense, plan, repair.corrections, repair.replaced)
    variants = {"dense": dense, "pruned": pruned, "repaired": repaired}
    return Candidates(variants, loaded.tokenizer, loaded.texts, loaded.source, plan, repair)


def _with_trained(candidates: Candidates, trained: Repair) -> Candidates:
    """The trained model beside the others, which stay what they are."""
    dense = candidates.variants["dense"]
    model = repaired_model(dense, candidates.plan, trained.corrections, trained.replaced)
    return replace(candidates, variants={**candidates.variants, FINETUNED: model}, trained=trained)
