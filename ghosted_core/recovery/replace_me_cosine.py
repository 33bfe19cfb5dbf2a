import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ghosted_core import linalg
from ghosted_core.errors import NonFiniteError
from ghosted_core.plan import Boundary
from ghosted_core.recovery.base import FitReport, MlpMap, StoredActivations, relative
from ghosted_core.spec import ReplaceMeCosine
from ghosted_core.statistics import Feature


@dataclass(frozen=True)
class _Batch:
    """Some tokens in float32: m, the stream y beside it, and what enters and leaves the run."""

    mlp: Float[Tensor, "tokens hidden"]
    entering: Float[Tensor, "tokens hidden"]
    leaving: Float[Tensor, "tokens hidden"]

    @property
    def beside(self) -> Float[Tensor, "tokens hidden"]:
        """The stream without m: y = x_pre - m."""
        return self.entering - self.mlp


@dataclass(frozen=True)
class _Quality:
    loss: float
    relative_residual: float


class ReplaceMeCosineTrainer:
    """T of ReplaceMe, trained by Adam from the identity on the cosine distance.

    `published`: 1 - cos(m T, x_post - y); `accurate`: 1 - cos(m T + y, x_post). The activations stay on
    disk; a batch of them is in memory at a time.

    Reference: ReplaceMe, arXiv 2505.02819, cosine distance.
    """

    features = frozenset({Feature.ENTERING, Feature.LEAVING, Feature.MLP})

    def __init__(self, settings: ReplaceMeCosine) -> None:
        self.settings = settings

    def steps(self, tokens: int) -> int:
        """Batches of all epochs."""
        return self.settings.epochs * math.ceil(tokens / self.settings.batch_tokens)

    def train(
        self,
        boundary: Boundary,
        fit: StoredActivations,
        held_out: StoredActivations,
        advance: Callable[[int], None],
    ) -> MlpMap:
        """Train T.

        Raises:
            NonFiniteError: T is infinite or not a number.
        """
        matrix = self._descend(fit, advance)
        if not bool(torch.isfinite(matrix).all()):
            raise NonFiniteError("Training on the cosine distance ended in infinity or not-a-number.")
        seen = self._quality(matrix, fit)
        unseen = self._quality(matrix, held_out) if held_out.tokens else None
        difference = (matrix - torch.eye(matrix.shape[0], device=matrix.device)).double()
        symmetric, antisymmetric = linalg.symmetric_shares(difference)
        report = FitReport(
            boundary=boundary,
            method=f"Adam on the cosine distance ({self.settings.objective})",
            tokens=fit.tokens,
            held_out_tokens=held_out.tokens,
            relative_residual=seen.relative_residual,
            held_out_relative_residual=unseen.relative_residual if unseen else None,
            correction_norm=float(torch.linalg.matrix_norm(difference)),
            symmetric_share=symmetric,
            antisymmetric_share=antisymmetric,
            detail={
                "steps": self.steps(fit.tokens),
                "cosine_distance": seen.loss,
                "held_out_cosine_distance": unseen.loss if unseen else None,
            },
        )
        return MlpMap(boundary=boundary, matrix=matrix, report=report)

    def _descend(self, fit: StoredActivations, advance: Callable[[int], None]) -> Tensor:
        width = fit.matrices[Feature.MLP].shape[1]
        generator = torch.Generator().manual_seed(self.settings.seed)
        matrix = torch.eye(width, device=fit.device, requires_grad=True)
        optimizer = torch.optim.Adam([matrix], lr=self.settings.learning_rate)
        with torch.enable_grad():
            for _ in range(self.settings.epochs):
                order = torch.randperm(fit.tokens, generator=generator)
                for rows in torch.split(order, self.settings.batch_tokens):
                    optimizer.zero_grad()
                    self._distances(matrix, _batch(fit, rows)).mean().backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    advance(1)
        return matrix.detach()

    def _distances(self, matrix: Tensor, batch: _Batch) -> Tensor:
        mapped = batch.mlp @ matrix
        if self.settings.objective == "accurate":
            return 1 - functional.cosine_similarity(mapped + batch.beside, batch.leaving, dim=-1)
        return 1 - functional.cosine_similarity(mapped, batch.leaving - batch.beside, dim=-1)

    def _quality(self, matrix: Tensor, stored: StoredActivations) -> _Quality:
        loss = remaining = energy = 0.0
        for batch in _in_order(stored, self.settings.batch_tokens):
            loss += float(self._distances(matrix, batch).sum())
            error = batch.mlp @ matrix + batch.beside - batch.leaving
            remaining += float(error.double().square().sum())
            energy += float((batch.leaving - batch.entering).double().square().sum())
        return _Quality(loss / stored.tokens, relative(remaining, energy))


def _batch(stored: StoredActivations, rows: Tensor) -> _Batch:
    found = stored.take(rows)
    return _Batch(found[Feature.MLP], found[Feature.ENTERING], found[Feature.LEAVING])


def _in_order(stored: StoredActivations, size: int) -> Iterator[_Batch]:
    for rows in torch.split(torch.arange(stored.tokens), size):
        yield _batch(stored, rows)
