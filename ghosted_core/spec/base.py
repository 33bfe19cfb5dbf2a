"""What all parts of a spec have in common."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Numbers and switches are what JSON calls so: the text "5" is no number, and true is not 1.
Integer = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Switch = Annotated[bool, Field(strict=True)]


class Frozen(BaseModel):
    """A value: immutable, and deaf to fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def read_switch(value: Any) -> Any:
    """True asks for a part with its defaults, False for none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


def read_named(value: Any) -> Any:
    """Text stands for the choice of that name with its defaults."""
    return {"name": value} if isinstance(value, str) else value
