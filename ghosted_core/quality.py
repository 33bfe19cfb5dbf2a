"""What a job's models are worth: everything its evaluation asks for, and whether that is enough."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.device import set_aside
from ghosted_core.evaluate.latency import measure_latency, measure_memory
from ghosted_core.evaluate.suite import Measured, Models, measure, measure_tasks
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.evaluate.task_subjects import save_repair
from ghosted_core.evaluate.tasks import TaskPlace
from ghosted_core.gate import Verdict, judge
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import Meter, MetricMeasured, Recorder
from ghosted_core.spec import Evaluation, JobSpec
from ghosted_core.texts import Texts

REPAIRED, PRUNED, FINETUNED = "repaired", "pruned", "finetuned"


@dataclass(frozen=True)
class Repair:
    """What was changed at the cuts: operators by boundary, and new values of tensors of the source."""

    corrections: Mapping[Boundary, Tensor]
    replaced: Mapping[str, Tensor]


@dataclass(frozen=True)
class Candidates:
    """The models of a job, by variant, and all that is needed to measure them.

    `variants` are dense, pruned and repaired, the last two one model without a repair, and finetuned where
    something was trained: then `trained` is what `repair` became.
    """

    variants: Mapping[str, PreTrainedModel]
    tokenizer: PreTrainedTokenizerBase
    texts: Texts
    source: ModelSource
    plan: PruningPlan
    repair: Repair
    trained: Repair | None = None

    @property
    def distinct(self) -> dict[str, PreTrainedModel]:
        """Without the unrepaired model under its second name."""
        return {name: model for name, model in self.variants.items() if name != REPAIRED or self.is_repaired}

    @property
    def is_repaired(self) -> bool:
        """Whether there is a repair."""
        return self.variants[REPAIRED] is not self.variants[PRUNED]

    @property
    def artifact(self) -> str:
        """The variant that the job delivers."""
        if self.trained is not None:
            return FINETUNED
        return REPAIRED if self.is_repaired else PRUNED


def evaluate(
    spec: JobSpec, candidates: Candidates, place: TaskPlace, recorder: Recorder, meter: Meter
) -> Measured:
    """What the spec's evaluation finds; nothing without one."""
    if spec.evaluation is None:
        return Measured()
    texts = candidates.texts
    models = Models(candidates.distinct, candidates.tokenizer, texts.evaluation, texts.corpora)
    measured = measure(spec.evaluation, models, recorder, meter)
    latency, tasks = spec.evaluation.latency, spec.evaluation.tasks
    if latency is not None:
        text = models.texts[0][1].tokens if models.texts else None
        measured = _with(measured, measure_latency(latency, candidates.distinct, text, recorder, meter))
    if latency is None and not tasks:
        return measured
    with _subject(spec, candidates, place.scratch) as subject, set_aside(candidates.distinct.values()):
        if latency is not None:
            found = measure_memory(latency, candidates.distinct, subject, recorder, meter)
            measured = _with(measured, found)
        if tasks:
            found, complete = measure_tasks(tasks, subject, place, recorder, meter)
            measured = replace(_with(measured, found), complete=complete)
    return measured


def _with(measured: Measured, found: Iterable[MetricMeasured]) -> Measured:
    return replace(measured, metrics=(*measured.metrics, *found))


def verdict(evaluation: Evaluation | None, measured: Measured, artifact: str) -> Verdict:
    """Whether the figures keep the bounds of the spec; without an evaluation there is nothing to miss."""
    if evaluation is None:
        return Verdict()
    figures = {metric.name: metric.value for metric in measured.metrics}
    return judge(evaluation.gate, figures, measured.derived, artifact)


@contextmanager
def _subject(spec: JobSpec, candidates: Candidates, scratch: Path) -> Iterator[Subject]:
    """How another process makes the same models; the repair lies in a file as long as the block lasts."""
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch, prefix=".repair-") as folder:
        paths = {}
        for name, repair in (("repair", candidates.repair), ("trained", candidates.trained)):
            if repair is not None and (repair.corrections or repair.replaced):
                paths[name] = Path(folder) / f"{name}.safetensors"
                save_repair(paths[name], repair.corrections, repair.replaced)
        yield Subject(
            source=candidates.source,
            is_checkpoint=False,
            dtype=spec.dtype,
            device=str(candidates.variants["dense"].device),
            variants=tuple(candidates.distinct),
            layer_count=candidates.plan.layer_count,
            removed=candidates.plan.removed,
            repair=paths.get("repair"),
            trained=paths.get("trained"),
        )
