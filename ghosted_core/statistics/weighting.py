"""How much each calibration token counts in a fit."""

import torch
from jaxtyping import Float, Float32
from torch import Tensor


def token_weights(
    weighting: str, entering: Float[Tensor, "windows tokens hidden"]
) -> Float32[Tensor, "windows tokens"] | None:
    """Weights of the tokens of whole windows; None where all count alike.

    The first token of a window carries activations hundreds of times the usual size (an attention
    sink) in most models. `skip_first` leaves it out; `inverse_norm` weighs by 1 / ||x_pre||^2,
    so that each token's relative error counts alike.
    """
    if weighting == "uniform":
        return None
    if weighting == "skip_first":
        weights = torch.ones(entering.shape[:2], device=entering.device)
        weights[:, 0] = 0
        return weights
    if weighting == "inverse_norm":
        squared = entering.float().square().sum(dim=-1)
        return 1 / squared.clamp_min(torch.finfo(torch.float32).tiny)
    raise ValueError(f"unknown weighting '{weighting}'")
