"""All that a spec's evaluation asks for, measured on the models of a job."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.data import Windows, batches
from ghosted_core.errors import HarnessError
from ghosted_core.evaluate.generation import Continuation, continue_prompt, prompts_for
from ghosted_core.evaluate.likeness import DENSE, Found, Likeness, likenesses
from ghosted_core.evaluate.perplexity import Perplexity, perplexities
from ghosted_core.evaluate.repetition import repetition
from ghosted_core.evaluate.task_protocol import Progress, Ready, Score, Subject
from ghosted_core.evaluate.tasks import TaskPlace, run_tasks
from ghosted_core.recorder import Logged, Meter, MetricMeasured, Recorder, Stage, stage
from ghosted_core.spec import Evaluation, HarnessTask, metric_key


@dataclass(frozen=True)
class Models:
    """The models to measure, by variant, the first being the one that the others were made of.

    `own` are windows of held-out text, `corpora` those of named texts.
    """

    variants: Mapping[str, PreTrainedModel]
    tokenizer: PreTrainedTokenizerBase
    own: Windows | None
    corpora: Mapping[str, Windows] = field(default_factory=dict)

    @property
    def dense(self) -> PreTrainedModel:
        """The first one."""
        return next(iter(self.variants.values()))

    @property
    def texts(self) -> Sequence[tuple[str, Windows]]:
        """All windows, with what the names of their metrics end with before the variant."""
        own = [("", self.own)] if self.own is not None else []
        return [*own, *((f"_{name}", windows) for name, windows in self.corpora.items())]

    @property
    def tokens(self) -> int:
        """How many tokens the evaluation of all texts reads."""
        return len(self.variants) * sum(windows.tokens.numel() for _, windows in self.texts)


@dataclass(frozen=True)
class Measured:
    """What evaluation found: metrics named METRIC_VARIANT, figures that follow from them, and texts.

    `complete` is False where the harness crashed, so that its tasks have no figures.
    """

    metrics: tuple[MetricMeasured, ...] = ()
    derived: Mapping[str, float] = field(default_factory=dict)
    continuations: Mapping[str, tuple[Continuation, ...]] = field(default_factory=dict)
    complete: bool = True

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name, metrics first."""
        return {metric.name: metric.value for metric in self.metrics} | dict(self.derived)


class _Notes:
    """Metrics as they are found: kept, and told to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.metrics: list[MetricMeasured] = []
        self.derived: dict[str, float] = {}

    def metric(self, name: str, value: float, detail: Mapping[str, Any]) -> None:
        measured = MetricMeasured(name, value, dict(detail))
        self.metrics.append(measured)
        self.recorder.record(measured)

    def log(self, message: str) -> None:
        self.recorder.record(Logged(message, "warning"))


def measure(evaluation: Evaluation, models: Models, recorder: Recorder, meter: Meter) -> Measured:
    """Perplexities and likeness on all texts, then continuations; everything but tasks."""
    notes = _Notes(recorder)
    if models.texts:
        with stage(Stage.EVALUATE, recorder, meter, total=models.tokens) as scope:
            for index, (ending, windows) in enumerate(models.texts):
                if index == 0:
                    # Held-out text if there is any, else the first corpus.
                    _like(models, ending, windows, notes, scope.advance)
                else:
                    _perplexities(models, ending, windows, notes, scope.advance)
    continuations = _continuations(evaluation, models, notes, meter)
    return Measured(tuple(notes.metrics), notes.derived, continuations)


def measure_tasks(
    tasks: Sequence[HarnessTask], subject: Subject, place: TaskPlace, recorder: Recorder, meter: Meter
) -> tuple[tuple[MetricMeasured, ...], bool]:
    """The figures of benchmark tasks, and whether all ran: a crash of the harness is logged, not raised."""
    notes = _Notes(recorder)
    try:
        _note_tasks(tasks, subject, place, notes, meter)
    except HarnessError as error:
        recorder.record(Logged(f"Benchmark tasks were not all run: {error.message}", "warning", error.output))
        return tuple(notes.metrics), False
    return tuple(notes.metrics), True


def _note_tasks(
    tasks: Sequence[HarnessTask], subject: Subject, place: TaskPlace, notes: _Notes, meter: Meter
) -> None:
    with run_tasks(tasks, subject, place) as said:
        ready = next(said, None)
        total = ready.items if isinstance(ready, Ready) else None
        with stage(Stage.EVALUATE, notes.recorder, meter, unit="task items", total=total) as scope:
            for message in said:
                if isinstance(message, Progress):
                    scope.advance(message.done - scope.done)
                elif isinstance(message, Score):
                    detail = {
                        "task": message.task,
                        "standard_error": message.standard_error,
                        **message.detail,
                    }
                    notes.metric(task_metric(message), message.value, detail)


def task_metric(score: Score) -> str:
    """METRIC_TASK_VARIANT, such as acc_boolq_dense."""
    return f"{metric_key(score.metric)}_{metric_key(score.task)}_{score.variant}"


def _like(models: Models, ending: str, windows: Windows, notes: _Notes, advance: Any) -> None:
    others = {name: model for name, model in models.variants.items() if model is not models.dense}
    found = likenesses(models.dense, others, batches(windows), advance)
    first = next(iter(models.variants))
    named = {first if name == DENSE else name: one for name, one in found.items()}
    for name, one in named.items():
        _note_perplexity(f"{ending}_{name}", one.perplexity, windows, notes)
    if not ending:
        _note_damage(named, notes)
    for name, one in named.items():
        if one.likeness is not None:
            _note_likeness(name, one.likeness, windows, notes)


def _perplexities(models: Models, ending: str, windows: Windows, notes: _Notes, advance: Any) -> None:
    found = perplexities(models.dense, models.variants, batches(windows), advance)
    for name, perplexity in found.items():
        _note_perplexity(f"{ending}_{name}", perplexity, windows, notes)


def _note_perplexity(ending: str, found: Perplexity, windows: Windows, notes: _Notes) -> None:
    detail = {"standard_error_nll": found.standard_error, "nll": found.nll, **windows.description}
    notes.metric(f"perplexity{ending}", found.value, detail)
    notes.derived[f"nll{ending}"] = found.nll
    notes.derived[f"nll_standard_error{ending}"] = found.standard_error


def _note_damage(found: Mapping[str, Found], notes: _Notes) -> None:
    nll = {name: one.perplexity.nll for name, one in found.items()}
    if {"dense", "pruned", "repaired"} <= nll.keys():
        notes.derived["damage_ratio"] = damage_ratio(nll)
    if {"dense", "pruned", "finetuned"} <= nll.keys():
        notes.derived["damage_ratio_finetuned"] = damage_ratio(nll, "finetuned")


def damage_ratio(nll: Mapping[str, float], variant: str = "repaired") -> float:
    """ln(ppl of the variant / ppl dense) over ln(ppl pruned / ppl dense): 0 heals all, 1 nothing.

    Where pruning did no damage there is nothing to heal, and a sign would turn: it is 0 if the variant is
    no worse than the dense model, else not a number.
    """
    damage, left = nll["pruned"] - nll["dense"], nll[variant] - nll["dense"]
    if damage > 0:
        return left / damage
    return 0.0 if left <= 0 else math.nan


def _note_likeness(name: str, found: Likeness, windows: Windows, notes: _Notes) -> None:
    for metric, mean in (("kl", found.divergence), ("next_token_agreement", found.agreement)):
        detail = {"standard_error": mean.standard_error, "relative_to": "dense", **windows.description}
        notes.metric(f"{metric}_{name}", mean.value, detail)


def _continuations(
    evaluation: Evaluation, models: Models, notes: _Notes, meter: Meter
) -> dict[str, tuple[Continuation, ...]]:
    """By variant; how much they repeat is noted."""
    prompts = prompts_for(
        models.dense,
        models.tokenizer,
        evaluation.prompts,
        evaluation.new_tokens,
        template=evaluation.template,
        log=notes.log,
    )
    found: dict[str, tuple[Continuation, ...]] = dict.fromkeys(models.variants, ())
    if not prompts:
        return found
    total = len(prompts) * len(found)
    with stage(Stage.EVALUATE, notes.recorder, meter, unit="continuations", total=total) as scope:
        for name, model in models.variants.items():
            for prompt in prompts:
                found[name] += (continue_prompt(model, models.tokenizer, prompt, evaluation.new_tokens),)
                scope.advance(1)
            _note_repetition(name, found[name], evaluation, notes)
    return found


def _digest(found: Sequence[Continuation]) -> str:
    """SHA-256 of what was read: some templates put today's date into it."""
    return hashlib.sha256(json.dumps([one.read for one in found]).encode()).hexdigest()


def _note_repetition(name: str, found: Sequence[Continuation], evaluation: Evaluation, notes: _Notes) -> None:
    detail = {
        "prompts": len(found),
        "new_tokens": evaluation.new_tokens,
        "chat_template": any(one.templated for one in found),
        "read": _digest(found),
    }
    for metric, value in repetition(one.tokens for one in found).items():
        notes.metric(f"{metric}_{name}", value, detail)
