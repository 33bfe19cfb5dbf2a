"""How cuts are repaired: one form a repair, with its paper and parameters."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from ghosted_core.spec.base import Frozen, read_named


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


Recovery = Annotated[
    Annotated[NoRecovery | Ghosted, Field(discriminator="name")],
    BeforeValidator(read_named, json_schema_input_type=str | NoRecovery | Ghosted),
]
RECOVERIES: tuple[type[NoRecovery | Ghosted], ...] = (NoRecovery, Ghosted)
