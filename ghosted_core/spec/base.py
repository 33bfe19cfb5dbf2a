"""What all parts of a spec have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: immutable, and deaf to fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def read_named(value: Any) -> Any:
    """Text stands for the choice of that name with its defaults."""
    return {"name": value} if isinstance(value, str) else value
