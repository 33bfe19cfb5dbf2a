"""One model or checkpoint by itself: the measurements of a job without the job."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from ghosted_core.comparison import ALONE, USUAL_LENGTH, Opened, open_model
from ghosted_core.corpora import Cut, Shelf
from ghosted_core.data import Documents, Part, Windows, token_windows
from ghosted_core.device import set_aside
from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate.generation import Continuation
from ghosted_core.evaluate.latency import measure_latency, measure_memory
from ghosted_core.evaluate.suite import Models, measure, measure_tasks
from ghosted_core.evaluate.tasks import TaskPlace, check_tasks
from ghosted_core.meter import ProcessMeter
from ghosted_core.recorder import Logged, MetricMeasured, Stage, stage
from ghosted_core.spec import DEFAULT_TEXT, CatalogText, Evaluation, ModelReference, TextReference
from ghosted_core.texts import hub, read_corpora
from ghosted_core.workplace import Workplace


@dataclass(frozen=True)
class Evaluated:
    """What was found of a model; metrics are named without a variant.

    `tasks_complete` is False where the harness crashed, so that its tasks have no figures.
    """

    name: str
    architecture: str
    dtype: str
    metrics: tuple[MetricMeasured, ...]
    continuations: tuple[Continuation, ...]
    tasks_complete: bool = True

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "name": self.name,
            "architecture": self.architecture,
            "dtype": self.dtype,
            "metrics": {metric.name: {"value": metric.value, **metric.detail} for metric in self.metrics},
            "continuations": {one.prompt: one.text for one in self.continuations},
            "tasks_complete": self.tasks_complete,
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

    Of `evaluation.dataset` no document is used that a checkpoint was calibrated or trained on. A harness
    that crashes costs its own figures alone.

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
    metrics, subject, complete = measured.metrics, opened.subject(dtype, place), True
    latency = evaluation.latency
    if latency is not None:
        text = models.texts[0][1].tokens if models.texts else None
        metrics += measure_latency(latency, models.variants, text, recorder, meter)
    beside = latency is not None or bool(evaluation.tasks)
    with set_aside([opened.model]) if beside else nullcontext():
        if latency is not None:
            metrics += measure_memory(latency, models.variants, subject, recorder, meter)
        if evaluation.tasks:
            found, complete = measure_tasks(evaluation.tasks, subject, tasks, recorder, meter)
            metrics += found
    return Evaluated(
        name=opened.name,
        architecture=type(opened.model).__name__,
        dtype=str(opened.model.dtype).removeprefix("torch."),
        metrics=tuple(_alone(metric) for metric in metrics),
        continuations=measured.continuations[ALONE],
        tasks_complete=complete,
    )


def _alone(metric: MetricMeasured) -> MetricMeasured:
    return replace(metric, name=metric.name.removesuffix(f"_{ALONE}"))


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
        documents = shelf.documents(evaluation.dataset)
        part = _part(evaluation.dataset, documents, opened, place)
        own = token_windows(
            documents,
            opened.tokenizer,
            length=usual.length,
            count=evaluation.windows,
            seed=0,
            part=part,
            vocab_size=usual.vocab_size,
        )
    corpora: Mapping[str, Windows] = read_corpora(evaluation.corpora, opened.tokenizer, usual, shelf)
    for name, windows in corpora.items():
        if windows.description["fingerprint"] in opened.learned_from:
            _warn(place, f"{opened.name} learned from the text of '{name}', which therefore flatters it.")
    return Models({ALONE: opened.model}, opened.tokenizer, own, corpora)


def _part(reference: TextReference, documents: Documents, opened: Opened, place: Workplace) -> Part:
    """Which documents are measured on.

    What jobs calibrate on unless they are told otherwise is divided for every model, so that a model and
    what was made of it are measured on the same tokens.
    """
    if reference == CatalogText(alias=DEFAULT_TEXT):
        return "evaluation"
    if documents.fingerprint not in opened.learned_from:
        return "all"
    _warn(
        place,
        f"{opened.name} learned from {documents.name}: it is measured on the evaluation documents alone. "
        "'ghosted compare' measures another model on the same ones.",
    )
    return "evaluation"


def _warn(place: Workplace, message: str) -> None:
    place.recorder.record(Logged(message, "warning"))
