"""The light distillation after the repair: what trains, on what, for how long."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ghosted_core.spec.base import Frozen, Integer, Number, read_switch
from ghosted_core.spec.references import TextReference

OPERATOR = "operator"
DOWN_PROJ = "down_proj"
Trainable = Literal["operator", "operator+down_proj", "down_proj"]


class Finetune(Frozen):
    """Train what repairs the cut towards the unpruned model; everything else stays frozen.

    `operator` trains the operators, `down_proj` the last projection of the layer before each cut; alone
    it leaves the checkpoint in the stock class. The loss is KL(teacher || student) on the teacher's
    `top_k` likeliest tokens and, as one more, all the others together. `epochs` passes over `sequences`
    windows of text that calibration and evaluation do not see; on `held_out_sequences` further ones the
    divergence is measured every `evaluate_every` steps (None: twice an epoch). The weights that did best
    there are kept, and after `patience` looks without a better one training ends.

    Without a `dataset` the text is that of the calibration. `sequence_length` None: as the calibration.
    The learning rate follows `schedule`: `cosine` falls to a twentieth of it.
    """

    trainable: Trainable = "operator"
    dataset: TextReference | None = None
    sequences: Integer = Field(default=64, ge=1, le=1_048_576)
    sequence_length: Integer | None = Field(default=None, ge=2, le=1_048_576)
    held_out_sequences: Integer = Field(default=8, ge=1, le=65536)
    epochs: Integer = Field(default=4, ge=1, le=1000)
    batch_size: Integer = Field(default=2, ge=1, le=4096)
    learning_rate: Number = Field(default=2e-4, gt=0, le=1)
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: Number = Field(default=1e-4, ge=0, le=1)
    top_k: Integer = Field(default=100, ge=1, le=4096)
    temperature: Number = Field(default=1.0, gt=0, le=100)
    cross_entropy: Number = Field(
        default=0.0, ge=0, le=1, description="Share of the loss that is the text's own next token."
    )
    evaluate_every: Integer | None = Field(default=None, ge=1)
    patience: Integer = Field(default=4, ge=1, le=10_000)
    seed: Integer = Field(default=0, ge=0, lt=2**63)

    @property
    def trains_operators(self) -> bool:
        """Whether operators train."""
        return OPERATOR in self.trainable.split("+")

    @property
    def trains_down_proj(self) -> bool:
        """Whether the layers before the cuts train."""
        return DOWN_PROJ in self.trainable.split("+")

    @property
    def steps_an_epoch(self) -> int:
        """Batches in one pass over the text."""
        return -(-self.sequences // self.batch_size)

    @property
    def steps(self) -> int:
        """Batches in all."""
        return self.epochs * self.steps_an_epoch

    def windows_seen(self, steps: int) -> int:
        """Windows of the first `steps` steps; the last batch of an epoch may be a smaller one."""
        epochs, rest = divmod(steps, self.steps_an_epoch)
        return epochs * self.sequences + min(rest * self.batch_size, self.sequences)

    @property
    def steps_between_looks(self) -> int:
        """After how many steps the held-out text is looked at."""
        return self.evaluate_every or max(1, self.steps_an_epoch // 2)

    @property
    def looks(self) -> int:
        """How often the held-out text is looked at, before the first step and after the last included."""
        return 1 + -(-self.steps // self.steps_between_looks)


FinetuneChoice = Annotated[
    Finetune | None, BeforeValidator(read_switch, json_schema_input_type=bool | Finetune | None)
]
