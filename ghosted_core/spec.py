"""What decides the result of a job, as frozen values without torch.

The same `JobSpec` is the body of an API request, the file of a command line and the record in a
checkpoint's manifest. Whatever does not change the result (device, folders, batch size, tokens)
is not in it.
"""

import hashlib
import json
import re
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_serializer,
    field_validator,
    model_validator,
)

HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$"
ALIAS = r"^[a-z0-9][a-z0-9._-]{0,95}$"
REVISION = r"^[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*$"

Alias = Annotated[str, StringConstraints(pattern=ALIAS)]


class Frozen(BaseModel):
    """A value: immutable, and deaf to fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HubModel(Frozen):
    """A repository on the Hugging Face Hub at a revision (a commit, branch or tag)."""

    kind: Literal["hub"] = "hub"
    id: Annotated[str, StringConstraints(pattern=HUB_ID)]
    revision: Annotated[str, StringConstraints(pattern=REVISION, max_length=128)] | None = None


class CatalogModel(Frozen):
    """A model that this installation knows by an alias."""

    kind: Literal["catalog"] = "catalog"
    alias: Alias


class LocalModel(Frozen):
    """A folder or GGUF file on this machine; only the library and the command line make these."""

    kind: Literal["local"] = "local"
    path: str


def _read_model(value: Any) -> Any:
    """Text names a Hub model `owner/name[@revision]` or an alias, never a path."""
    if not isinstance(value, str):
        return value
    if "/" not in value:
        return {"kind": "catalog", "alias": value}
    identifier, _, revision = value.partition("@")
    return {"kind": "hub", "id": identifier, "revision": revision or None}


ModelReference = Annotated[
    Annotated[HubModel | CatalogModel | LocalModel, Field(discriminator="kind")],
    BeforeValidator(_read_model, json_schema_input_type=str | HubModel | CatalogModel | LocalModel),
]


class CatalogText(Frozen):
    """A text corpus that this installation knows by an alias."""

    kind: Literal["catalog"] = "catalog"
    alias: Alias


class LocalText(Frozen):
    """A .txt, .jsonl, .jsonl.gz or .parquet file on this machine; never from the service's users."""

    kind: Literal["local"] = "local"
    path: str


def _read_text(value: Any) -> Any:
    return {"kind": "catalog", "alias": value} if isinstance(value, str) else value


TextReference = Annotated[
    Annotated[CatalogText | LocalText, Field(discriminator="kind")],
    BeforeValidator(_read_text, json_schema_input_type=str | CatalogText | LocalText),
]


class Streamline(Frozen):
    """Remove the run of layers that changes the hidden state's direction least.

    Score of a start s: mean over tokens of cos(x_s, x_{s+n}); the highest wins, the first of equals.
    """

    title: ClassVar[str] = "LLM-Streamline"
    paper: ClassVar[str | None] = "arXiv:2403.19135"

    name: Literal["streamline"] = "streamline"


class Explicit(Frozen):
    """Remove the layers that the user names."""

    title: ClassVar[str] = "Explicit"
    paper: ClassVar[str | None] = None

    name: Literal["explicit"] = "explicit"
    indices: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)

    @field_validator("indices")
    @classmethod
    def _in_order(cls, indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(indices))


class NoRecovery(Frozen):
    """Leave the cut as it is. The checkpoint is of the stock class."""

    title: ClassVar[str] = "None"
    paper: ClassVar[str | None] = None

    name: Literal["none"] = "none"


class Ghosted(Frozen):
    """Insert at each cut the operator I + M with M = argmin ||X_pre M - (X_post - X_pre)||_F^2.

    `ridge` is added to the diagonal of X_pre' X_pre: in its own units if `absolute`, in units of
    its mean diagonal entry if `relative`. `solver: truncated` instead drops the singular values of
    X_pre below 1e-6 of the largest. `weighting` says how much each token counts in the fit:
    `skip_first` leaves out the first token of each window (the attention sink), `inverse_norm`
    weighs by 1 / ||x_pre||^2.
    """

    title: ClassVar[str] = "Ghosted Layers"
    paper: ClassVar[str | None] = "arXiv:2605.15491"

    name: Literal["ghosted"] = "ghosted"
    ridge: float = Field(default=1e-6, ge=0)
    ridge_scale: Literal["absolute", "relative"] = "absolute"
    solver: Literal["cholesky", "truncated"] = "cholesky"
    weighting: Literal["uniform", "skip_first", "inverse_norm"] = "uniform"


def _read_named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Strategy = Annotated[
    Annotated[Streamline | Explicit, Field(discriminator="name")],
    BeforeValidator(_read_named, json_schema_input_type=str | Streamline | Explicit),
]
Recovery = Annotated[
    Annotated[NoRecovery | Ghosted, Field(discriminator="name")],
    BeforeValidator(_read_named, json_schema_input_type=str | NoRecovery | Ghosted),
]
STRATEGIES: tuple[type[Streamline | Explicit], ...] = (Streamline, Explicit)
RECOVERIES: tuple[type[NoRecovery | Ghosted], ...] = (NoRecovery, Ghosted)

DEFAULT_TEXT = "boolq-passages"


class Calibration(Frozen):
    """Text run through the unpruned model: `sequences` windows of `sequence_length` tokens.

    `held_out_sequences` further windows do not enter the fit; the operator is tested on them.
    """

    dataset: TextReference = Field(default=CatalogText(alias=DEFAULT_TEXT))
    sequences: int = Field(default=32, ge=1, le=65536)
    sequence_length: int = Field(default=2048, ge=2, le=1_048_576)
    held_out_sequences: int = Field(default=4, ge=0, le=65536)
    seed: int = Field(default=0, ge=0, lt=2**63)


class Evaluation(Frozen):
    """What is measured on the dense, the pruned and the repaired model.

    Without a `dataset` of its own it takes documents of the calibration set that calibration
    never sees.
    """

    dataset: TextReference | None = None
    windows: int = Field(default=16, ge=1, le=65536)
    sequence_length: int | None = Field(default=None, ge=2, le=1_048_576)
    prompts: tuple[Annotated[str, StringConstraints(min_length=1, max_length=2000)], ...] = Field(
        default=("The capital of France is", "Water boils when"), max_length=16
    )
    new_tokens: int = Field(default=24, ge=1, le=512)


class JobSpec(Frozen):
    """Everything that decides the result of a job."""

    model: ModelReference
    strategy: Strategy = Field(default=Streamline())
    layers: int | None = Field(default=None, ge=1, description="How many layers to remove.")
    recovery: Recovery = Field(default=Ghosted())
    calibration: Calibration = Calibration()
    evaluation: Evaluation | None = Evaluation()
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"

    @field_serializer("layers")
    def _redundant_count(self, layers: int | None) -> int | None:
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

    @property
    def removal_count(self) -> int:
        """How many layers go."""
        if isinstance(self.strategy, Explicit):
            return len(self.strategy.indices)
        # The validator above made sure of it; this is for the type checker.
        return self.layers or 0

    def public(self) -> "JobSpec":
        """The spec as it may travel inside an artifact: of local paths only the names are left."""
        fields = self.model_dump(mode="json")
        for reference in (fields["model"], fields["calibration"]["dataset"], _own_text(fields)):
            if reference is not None and reference["kind"] == "local":
                reference["path"] = PurePath(reference["path"]).name
        return JobSpec.model_validate(fields)

    def canonical_json(self) -> str:
        """The spec as JSON with sorted keys and no white space: equal specs, equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()


def _own_text(fields: dict[str, Any]) -> dict[str, Any] | None:
    return (fields["evaluation"] or {}).get("dataset")


def is_hub_id(text: str) -> bool:
    """Whether `text` has the form owner/name of a Hub repository."""
    return re.fullmatch(HUB_ID, text) is not None
