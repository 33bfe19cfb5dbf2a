"""One model or checkpoint by itself: the measurements of a job without the job."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ghosted_core.comparison import USUAL_LENGTH, Opened, open_model
from ghosted_core.corpora import Cut, Shelf
from ghosted_core.data import Windows, token_windows
from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate.generation import Continuation
from ghosted_core.evaluate.latency import measure_latency, measure_memory
from ghosted_core.evaluate.suite import Models, measure, task_metrics
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.evaluate.tasks import TaskPlace, check_tasks
from ghosted_core.meter import ProcessMeter
from ghosted_core.recorder import MetricMeasured, Stage, stage
from ghosted_core.spec import Evaluation, ModelReference, TextReference
from ghosted_core.texts import hub, read_corpora
from ghosted_core.workplace import Workplace

# A model by itself is measured like the dense one of a job.
ALONE = "dense"


@dataclass(frozen=True)
class Evaluated:
    """What was found of a model; metrics are named without a variant."""

    name: str
    architecture: str
    dtype: str
    metrics: tuple[MetricMeasured, ...]
    continuations: tuple[Continuation, ...]

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "name": self.name,
            "architecture": self.architecture,
            "dtype": self.dtype,
            "metrics": {metric.name: {"value": metric.value, **metric.detail} for metric in self.metrics},
            "continuations": {one.prompt: one.text for one in self.continuations},
        }


def evaluate_model(
    reference: ModelReference,
    evaluation: Evaluation,
    place: Workplace,
    tasks: TaskPlace,
    *,
    dtype: str = "auto",
) -> Evaluated:
    """Measure a model, or a checkpoint of ours, as `evaluation` says; its gate is not looked at.

    The text of `evaluation.dataset` that a checkpoint was calibrated on is not used.

    Raises:
        InvalidSpecError: a window is longer than the model reads.
        GhostedError: the model, a text or a task cannot be used.
    """
    meter = ProcessMeter(torch.device(place.device))
    if evaluation.tasks:
        check_tasks(evaluation.tasks, tasks)
    with stage(Stage.LOAD, place.recorder, meter, unit="steps", total=2) as scope:
        opened = open_model(reference, dtype, place)
        scope.advance(1)
        models = _models(opened, evaluation, place)
        scope.advance(1)
    recorder = place.recorder
    measured = measure(evaluation, models, recorder, meter)
    metrics, subject = measured.metrics, _subject(opened, dtype, place)
    latency = evaluation.latency
    if latency is not None:
        text = models.texts[0][1].tokens if models.texts else None
        metrics += measure_latency(latency, models.variants, text, recorder, meter)
        metrics += measure_memory(latency, models.variants, subject, recorder, meter)
    if evaluation.tasks:
        metrics += task_metrics(evaluation.tasks, subject, tasks, recorder, meter)
    return Evaluated(
        name=opened.name,
        architecture=type(opened.model).__name__,
        dtype=str(opened.model.dtype).removeprefix("torch."),
        metrics=tuple(_alone(metric) for metric in metrics),
        continuations=measured.continuations[ALONE],
    )


def _alone(metric: MetricMeasured) -> MetricMeasured:
    return replace(metric, name=metric.name.removesuffix(f"_{ALONE}"))


def _subject(opened: Opened, dtype: str, place: Workplace) -> Subject:
    return Subject(
        source=opened.source,
        is_checkpoint=opened.is_checkpoint,
        dtype=dtype,
        device=place.device,
        variants=(ALONE,),
    )


def _models(opened: Opened, evaluation: Evaluation, place: Workplace) -> Models:
    shelf = Shelf(place.catalog, place.cache, place.log, hub(place.cache, place.log))
    text = opened.model.config.get_text_config()
    limit = getattr(text, "max_position_embeddings", None) or USUAL_LENGTH
    length = evaluation.sequence_length or min(limit, USUAL_LENGTH)
    longest = max([length, *(corpus.sequence_length or 0 for corpus in evaluation.corpora)])
    if longest > limit:
        raise InvalidSpecError(f"A window of {longest} tokens is more than the {limit} that the model reads.")
    usual = Cut(length, evaluation.usual_windows, text.vocab_size)
    own = None
    if evaluation.dataset is not None and evaluation.windows:
        own = _own(opened, evaluation.dataset, evaluation.windows, usual, shelf)
    corpora: Mapping[str, Windows] = read_corpora(evaluation.corpora, opened.tokenizer, usual, shelf)
    return Models({ALONE: opened.model}, opened.tokenizer, own, corpora)


def _own(opened: Opened, reference: TextReference, count: int, cut: Cut, shelf: Shelf) -> Windows:
    documents = shelf.documents(reference)
    return token_windows(
        documents,
        opened.tokenizer,
        length=cut.length,
        count=count,
        seed=0,
        part="evaluation" if documents.fingerprint in opened.learned_from else "all",
        vocab_size=cut.vocab_size,
    )
