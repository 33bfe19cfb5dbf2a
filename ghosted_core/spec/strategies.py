"""How layers are chosen: one form a criterion, with its paper and parameters."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from ghosted_core.spec.base import Frozen, read_named


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


Strategy = Annotated[
    Annotated[Streamline | Explicit, Field(discriminator="name")],
    BeforeValidator(read_named, json_schema_input_type=str | Streamline | Explicit),
]
STRATEGIES: tuple[type[Streamline | Explicit], ...] = (Streamline, Explicit)
