"""The whole of what decides a job's result."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field, field_serializer, model_validator

from ghosted_core.spec.amounts import LayerAmount, resolve_amount
from ghosted_core.spec.base import Frozen, Integer
from ghosted_core.spec.evaluation import DAMAGE_RATIO, Evaluation
from ghosted_core.spec.finetuning import FinetuneChoice
from ghosted_core.spec.recoveries import OPERATORS, Ghosted, Recovery
from ghosted_core.spec.references import CatalogText, ModelReference, TextReference
from ghosted_core.spec.strategies import Explicit, Strategy, Streamline

DEFAULT_TEXT = "boolq-passages"


class Calibration(Frozen):
    """Text run through the unpruned model: `sequences` windows of `sequence_length` tokens.

    `held_out_sequences` further windows do not enter the fit; the operator is tested on them.
    """

    dataset: TextReference = Field(default=CatalogText(alias=DEFAULT_TEXT))
    sequences: Integer = Field(default=32, ge=1, le=65536)
    sequence_length: Integer = Field(default=2048, ge=2, le=1_048_576)
    held_out_sequences: Integer = Field(default=4, ge=0, le=65536)
    seed: Integer = Field(default=0, ge=0, lt=2**63)


class JobSpec(Frozen):
    """Everything that decides the result of a job."""

    model: ModelReference
    strategy: Strategy = Field(default=Streamline())
    layers: LayerAmount | None = Field(
        default=None, description="How many layers to remove, or which share of them: '25%'."
    )
    recovery: Recovery = Field(default=Ghosted())
    calibration: Calibration = Calibration()
    # Left out where nothing trains: such a spec reads and digests as it did before there was training.
    finetune: FinetuneChoice = Field(default=None, exclude_if=lambda finetune: finetune is None)
    evaluation: Evaluation | None = Evaluation()
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"

    @field_serializer("layers")
    def _redundant_count(self, layers: int | str | None) -> int | str | None:
        """Explicit indices say the count themselves: one meaning, one canonical form."""
        return None if isinstance(self.strategy, Explicit) else layers

    @model_validator(mode="after")
    def _layers_fit_strategy(self) -> "JobSpec":
        if not isinstance(self.strategy, Explicit):
            if self.layers is None:
                raise ValueError(f"strategy '{self.strategy.name}' needs 'layers': how many to remove")
            return self
        if len(set(self.strategy.indices)) != len(self.strategy.indices):
            raise ValueError("'strategy.indices' names a layer more than once")
        if self.layers not in {None, len(self.strategy.indices)}:
            raise ValueError(
                f"'layers' is {self.layers}, but 'strategy.indices' names {len(self.strategy.indices)}"
            )
        return self

    @model_validator(mode="after")
    def _held_out_tokens_choose_ridge(self) -> "JobSpec":
        chosen = isinstance(self.recovery, Ghosted) and self.recovery.ridge == "auto"
        if chosen and not self.calibration.held_out_sequences:
            raise ValueError("'recovery.ridge: auto' needs 'calibration.held_out_sequences' of at least 1")
        return self

    @model_validator(mode="after")
    def _there_is_something_to_train(self) -> "JobSpec":
        finetune, recovery = self.finetune, self.recovery.name
        if finetune is not None and finetune.trains_operators and recovery not in OPERATORS:
            raise ValueError(
                f"'finetune.trainable: {finetune.trainable}' trains operators, and 'recovery: {recovery}' "
                f"makes none; use 'down_proj', or one of {', '.join(sorted(OPERATORS))}"
            )
        return self

    @model_validator(mode="after")
    def _no_corpus_is_trained_on(self) -> "JobSpec":
        if self.finetune is None or self.evaluation is None:
            return self
        for corpus in self.evaluation.corpora:
            if corpus.text == self.finetune_text:
                raise ValueError(f"'finetune' would train on the text of the corpus '{corpus.name}'")
        return self

    @model_validator(mode="after")
    def _there_is_something_to_heal(self) -> "JobSpec":
        bounds = () if self.evaluation is None else self.evaluation.gate
        repairs = self.recovery.name != "none" or self.finetune is not None
        if not repairs and any(bound.metric == DAMAGE_RATIO for bound in bounds):
            raise ValueError(f"the gate bounds '{DAMAGE_RATIO}', but 'recovery: none' heals nothing")
        return self

    def removal_count(self, layer_count: int) -> int:
        """How many layers of a model of `layer_count` layers go."""
        if isinstance(self.strategy, Explicit):
            return len(self.strategy.indices)
        # The validator above made sure that there is an amount; 0 is for the type checker.
        return resolve_amount(self.layers or 0, layer_count)

    @property
    def longest_window(self) -> tuple[str, int]:
        """The field that asks for the longest window that the model has to read, and its tokens."""
        asked: dict[str, int | None] = {"calibration.sequence_length": self.calibration.sequence_length}
        if self.finetune is not None:
            asked["finetune.sequence_length"] = self.finetune.sequence_length
        if self.evaluation is not None:
            asked["evaluation.sequence_length"] = self.evaluation.sequence_length
            for index, corpus in enumerate(self.evaluation.corpora):
                asked[f"evaluation.corpora.{index}.sequence_length"] = corpus.sequence_length
        return max(((field, length or 0) for field, length in asked.items()), key=lambda one: one[1])

    @property
    def finetune_text(self) -> TextReference:
        """The text to train on: the calibration's where no other is named."""
        own = None if self.finetune is None else self.finetune.dataset
        return self.calibration.dataset if own is None else own

    def public(self) -> "JobSpec":
        """The spec as it may travel inside an artifact: of local paths only the names are left."""
        fields = self.model_dump(mode="json")
        for reference in (fields["model"], fields["calibration"]["dataset"], *_own_texts(fields)):
            if reference["kind"] == "local":
                reference["path"] = PurePath(reference["path"]).name
        return JobSpec.model_validate(fields)

    def canonical_json(self) -> str:
        """The spec as JSON with sorted keys and no white space: equal specs, equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()


def _own_texts(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The texts that evaluation and training name for themselves."""
    evaluation = fields["evaluation"] or {"corpora": ()}
    for holder in (evaluation, *evaluation["corpora"], fields.get("finetune", {})):
        if holder.get("dataset") is not None:
            yield holder["dataset"]
