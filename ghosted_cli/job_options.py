"""What a job is to do, as options: one declaration for `compress`, `plan`, `submit` and `retry`."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ghosted_cli.measuring import (
    Corpus,
    Gate,
    Latency,
    Limit,
    NewTokens,
    OnMiss,
    Prompts,
    Tasks,
    Template,
    corpus_choices,
    gate_choices,
    task_choices,
)
from ghosted_cli.request import (
    ReadText,
    calibration_choice,
    finetune_choice,
    setting,
    strategy_choice,
    strategy_names,
    text_reference,
    without_none,
)
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import RECOVERIES, Ghosted

RECOVERY_NAMES = ", ".join(form.model_fields["name"].default for form in RECOVERIES)

Layers = Annotated[str | None, typer.Option(help="How many layers to remove, or which share: 25%.")]
Remove = Annotated[str | None, typer.Option(help="Which layers instead: 3,5,8-12 (from 0).")]
Strategy = Annotated[
    str | None,
    typer.Option(
        help=f"How layers are chosen: {strategy_names()}. Settings follow the name: taylor:protect=no."
    ),
]
Recovery = Annotated[str | None, typer.Option(help=f"How cuts are repaired: {RECOVERY_NAMES}.")]
Weighting = Annotated[str | None, typer.Option(help="uniform, skip_first or inverse_norm.")]
Ridge = Annotated[str | None, typer.Option(help="Added to the diagonal of X'X: a number, or auto.")]
Solver = Annotated[str | None, typer.Option(help="cholesky or truncated.")]
Fit = Annotated[str | None, typer.Option(help="Several cuts: dense or sequential.")]
CalibrationText = Annotated[
    str | None, typer.Option("--calibration", help="Text to calibrate on: a file or an alias.")
]
Sequences = Annotated[int | None, typer.Option(help="Calibration windows.")]
SequenceLength = Annotated[int | None, typer.Option(help="Tokens in a window.")]
HeldOut = Annotated[int | None, typer.Option(help="Further windows to test the fit on.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the choice of text.")]
Finetune = Annotated[
    bool, typer.Option("--finetune", help="Train the operators towards the unpruned model after the repair.")
]
FinetuneSettings = Annotated[
    str | None,
    typer.Option(
        "--finetune-with",
        help="The same with settings: epochs=1,trainable=down_proj,learning_rate=1e-3,dataset=TEXT.",
    ),
]
EvaluationText = Annotated[
    str | None, typer.Option("--evaluation", help="Text to evaluate on: a file or an alias.")
]
Windows = Annotated[int | None, typer.Option(help="Evaluation windows.")]
NoEvaluation = Annotated[bool, typer.Option("--no-evaluation", help="Do not evaluate.")]
Dtype = Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")]


@dataclass(frozen=True)
class JobOptions:
    """What the options say. None, and a switch that is off, say nothing: the spec has the defaults."""

    layers: Layers = None
    remove: Remove = None
    strategy: Strategy = None
    recovery: Recovery = None
    weighting: Weighting = None
    ridge: Ridge = None
    solver: Solver = None
    fit: Fit = None
    calibration: CalibrationText = None
    sequences: Sequences = None
    sequence_length: SequenceLength = None
    held_out: HeldOut = None
    seed: Seed = None
    finetune: Finetune = False
    finetune_settings: FinetuneSettings = None
    evaluation: EvaluationText = None
    windows: Windows = None
    corpus: Corpus = None
    tasks: Tasks = None
    limit: Limit = None
    prompt: Prompts = None
    new_tokens: NewTokens = None
    template: Template = None
    gate: Gate = None
    on_miss: OnMiss = None
    latency: Latency = False
    no_evaluation: NoEvaluation = False
    dtype: Dtype = None

    def parts(self, read: ReadText = text_reference) -> dict[str, Any]:
        """The parts of a spec that the options speak of, its texts as `read` says.

        Raises:
            InvalidSpecError: an option has another form.
            DataError: a text is one that `read` refuses.
        """
        named = self.strategy is not None or self.remove is not None
        told = without_none(
            {
                "strategy": strategy_choice(self.strategy or "", self.remove) if named else None,
                "layers": self.layers,
                "recovery": self._recovery() or None,
                "calibration": self._calibration(read) or None,
                "finetune": finetune_choice(self.finetune_settings, asked=self.finetune, read=read),
                "evaluation": self._evaluation(read) or None,
                "dtype": self.dtype,
            }
        )
        # Here None is a value: nothing is measured.
        return {**told, "evaluation": None} if self.no_evaluation else told

    def check_names_repair(self) -> None:
        """Where there is a repair already, of any kind, its settings cannot stand alone.

        Raises:
            InvalidSpecError: they do.
        """
        settings = self._recovery_settings()
        if self.recovery is None and settings:
            raise InvalidSpecError(
                f"--{next(iter(settings))} is the setting of a repair, and none is named.",
                advice="Name the repair as well, with --recovery; it takes the old one's place with all its "
                "settings.",
            )

    def _recovery(self) -> dict[str, Any]:
        settings = self._recovery_settings()
        if self.recovery is None and not settings:
            return {}
        return {"name": self.recovery or Ghosted().name, **settings}

    def _recovery_settings(self) -> dict[str, Any]:
        return without_none(
            {
                "weighting": self.weighting,
                "ridge": None if self.ridge is None else setting(self.ridge),
                "solver": self.solver,
                "fit": self.fit,
            }
        )

    def _calibration(self, read: ReadText) -> dict[str, Any]:
        return calibration_choice(
            read(self.calibration), self.sequences, self.sequence_length, self.held_out, self.seed
        )

    def _evaluation(self, read: ReadText) -> dict[str, Any]:
        if self.no_evaluation:
            return {}
        return without_none(
            {
                "dataset": read(self.evaluation),
                "windows": self.windows,
                "corpora": corpus_choices(self.corpus, read) or None,
                "tasks": task_choices(self.tasks, self.limit) or None,
                "prompts": self.prompt,
                "new_tokens": self.new_tokens,
                "template": self.template,
                "gate": gate_choices(self.gate) or None,
                "on_miss": self.on_miss,
                "latency": self.latency or None,
            }
        )
