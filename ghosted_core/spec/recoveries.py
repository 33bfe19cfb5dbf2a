"""How cuts are repaired: one form a repair, with its paper and parameters."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from ghosted_core.spec.base import Frozen, Integer, Number, read_named

Weighting = Literal["uniform", "skip_first", "inverse_norm"]
RidgeScale = Literal["absolute", "relative"]
Precision = Literal["float64", "float32"]


class NoRecovery(Frozen):
    """Leave the cut as it is. The checkpoint is of the stock class."""

    title: ClassVar[str] = "None"
    paper: ClassVar[str | None] = None

    name: Literal["none"] = "none"


class PruneAndComp(Frozen):
    """Multiply the hidden state at each cut by one number c, folded into the weights before it.

    c = mean over sequences and channels of mean_t |x_post| / mean_t |x_pre|. The checkpoint is of the
    stock class.
    """

    title: ClassVar[str] = "Prune&Comp"
    paper: ClassVar[str | None] = "arXiv:2507.18212"

    name: Literal["prune_and_comp"] = "prune_and_comp"


class LinearPatchDiag(Frozen):
    """Multiply each channel at each cut by a number of its own.

    d_k = mean over sequences of mean_t |x_post|_k / mean_t |x_pre|_k.
    """

    title: ClassVar[str] = "LinearPatch, diagonal"
    paper: ClassVar[str | None] = "arXiv:2505.24680"

    name: Literal["linear_patch_diag"] = "linear_patch_diag"


class LinearPatchRotate(Frozen):
    """Multiply each channel of the rotated hidden state by a number of its own: x H D H'.

    H is the orthonormal Hadamard matrix of the width, D holds the ratios of LinearPatch measured after
    the rotation.
    """

    title: ClassVar[str] = "LinearPatch, rotated"
    paper: ClassVar[str | None] = "arXiv:2505.24680"

    name: Literal["linear_patch_rotate"] = "linear_patch_rotate"


class ReplaceMe(Frozen):
    """Map the MLP output m of the layer before each cut, y + m T, folded into its down projection.

    T = (m'm + ridge I)^-1 m'(x_post - y) with y = x_pre - m. The checkpoint is of the stock class.
    Settings are those of Ghosted Layers.
    """

    title: ClassVar[str] = "ReplaceMe, least squares"
    paper: ClassVar[str | None] = "arXiv:2505.02819"

    name: Literal["replace_me"] = "replace_me"
    ridge: Number = Field(default=1e-6, ge=0)
    ridge_scale: RidgeScale = "absolute"
    weighting: Weighting = "uniform"
    products: Precision = "float64"


class ReplaceMeCosine(Frozen):
    """As ReplaceMe, with T trained by Adam from the identity instead of solved for.

    `published` minimises 1 - cos(m T, x_post - y), `accurate` 1 - cos(m T + y, x_post).
    """

    title: ClassVar[str] = "ReplaceMe, cosine"
    paper: ClassVar[str | None] = "arXiv:2505.02819"

    name: Literal["replace_me_cosine"] = "replace_me_cosine"
    objective: Literal["published", "accurate"] = "published"
    learning_rate: Number = Field(default=1e-4, gt=0, le=1)
    epochs: Integer = Field(default=10, ge=1, le=1000)
    batch_tokens: Integer = Field(default=1024, ge=1, le=1_048_576)
    seed: Integer = Field(default=0, ge=0, lt=2**63)


class Ghosted(Frozen):
    """Insert at each cut the operator I + M with M = argmin ||X_pre M - (X_post - X_pre)||_F^2.

    `ridge` is added to the diagonal of X_pre' X_pre: in its own units if `absolute`, in units of
    its mean diagonal entry if `relative`; `auto` takes the relative one that does best on held-out
    tokens. `solver: truncated` instead drops the singular values of X_pre below 1e-6 of the largest.
    `weighting` says how much each token counts in the fit: `skip_first` leaves out the first token of
    each window (the attention sink), `inverse_norm` weighs by 1 / ||x_pre||^2. `fit` matters where
    there are several cuts: `dense` fits each on the unpruned model, `sequential` each on the stream
    that the repaired cuts before it leave. `products: float32` multiplies batches in float32, a fast
    path on hardware that is slow in float64; the report says how far off its products are.
    """

    title: ClassVar[str] = "Ghosted Layers"
    paper: ClassVar[str | None] = "arXiv:2605.15491"

    name: Literal["ghosted"] = "ghosted"
    ridge: Annotated[Number, Field(ge=0)] | Literal["auto"] = 1e-6
    ridge_scale: RidgeScale = "absolute"
    solver: Literal["cholesky", "truncated"] = "cholesky"
    weighting: Weighting = "uniform"
    fit: Literal["dense", "sequential"] = "dense"
    products: Precision = "float64"

    @model_validator(mode="after")
    def _solver_takes_ridge(self) -> "Ghosted":
        if self.ridge == "auto" and self.solver == "truncated":
            raise ValueError("'ridge: auto' has no meaning for 'solver: truncated', which uses none")
        return self


AnyRecovery = (
    NoRecovery | PruneAndComp | LinearPatchDiag | LinearPatchRotate | ReplaceMe | ReplaceMeCosine | Ghosted
)
# Those that leave a matrix at the cut; all others are folded into the weights, or there is none.
OPERATORS = frozenset({"ghosted", "linear_patch_diag", "linear_patch_rotate"})
# Names that stand for a choice with its defaults.
RecoveryName = Literal[
    "none",
    "prune_and_comp",
    "linear_patch_diag",
    "linear_patch_rotate",
    "replace_me",
    "replace_me_cosine",
    "ghosted",
]
Recovery = Annotated[
    Annotated[AnyRecovery, Field(discriminator="name")],
    BeforeValidator(read_named, json_schema_input_type=RecoveryName | AnyRecovery),
]
RECOVERIES: tuple[type[AnyRecovery], ...] = (
    NoRecovery,
    PruneAndComp,
    LinearPatchDiag,
    LinearPatchRotate,
    ReplaceMe,
    ReplaceMeCosine,
    Ghosted,
)
