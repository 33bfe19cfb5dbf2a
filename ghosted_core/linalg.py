"""Solves and norms on float64 matrices: tensors in, tensors out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from ghosted_core.errors import IllConditionedError, NonFiniteError

# Eigenvalues of X'X below this share of the largest are rounding noise in float64.
NOISE_FLOOR = 1e-14


@dataclass(frozen=True)
class LeastSquares:
    """M with (G + ridge I) M = B, and how it was found.

    `solution` has the shape of B. `rank` counts the directions that took part; `condition` is the
    ratio of the largest to the smallest eigenvalue among them; `method` names the factorization.
    """

    solution: Float64[Tensor, "hidden target"]
    rank: int
    condition: float
    method: str


def ridge_solve(
    gram: Float64[Tensor, "hidden hidden"], cross: Float64[Tensor, "hidden target"], ridge: float
) -> LeastSquares:
    """Solve (G + ridge I) M = B by Cholesky; where that fails, by the minimum-norm solution.

    G is symmetric positive semi-definite: a Gram matrix X'X. With fewer tokens than columns, or
    repeated ones, it is singular, and a ridge far below its scale does not help in float64. Then
    the directions below `NOISE_FLOOR` of the largest eigenvalue are dropped.

    Raises:
        NonFiniteError: G or B holds infinity or not-a-number.
        IllConditionedError: G is zero.
    """
    _require_finite(gram, cross)
    regularized = gram + ridge * torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    eigenvalues = torch.linalg.eigvalsh(regularized)
    largest, smallest = float(eigenvalues[-1]), float(eigenvalues[0])
    if smallest <= NOISE_FLOOR * largest:
        return _eigen_solve(regularized, cross, cutoff=NOISE_FLOOR)
    factor = torch.linalg.cholesky(regularized)
    return LeastSquares(
        solution=torch.cholesky_solve(cross, factor),
        rank=gram.shape[0],
        condition=largest / smallest,
        method="cholesky",
    )


def truncated_solve(
    gram: Float64[Tensor, "hidden hidden"],
    cross: Float64[Tensor, "hidden target"],
    singular_value_cutoff: float = 1e-6,
) -> LeastSquares:
    """The minimum-norm M = X^+ D from G = X'X and B = X'D.

    Singular values of X below `singular_value_cutoff` of the largest are taken for zero; they are
    square roots of G's eigenvalues.

    Raises:
        NonFiniteError: G or B holds infinity or not-a-number.
        IllConditionedError: G is zero.
    """
    _require_finite(gram, cross)
    return _eigen_solve(gram, cross, cutoff=singular_value_cutoff**2)


def ridge_path(
    gram: Float64[Tensor, "hidden hidden"],
    cross: Float64[Tensor, "hidden target"],
    ridges: Sequence[float],
) -> Iterator[LeastSquares]:
    """The solutions of (G + ridge I) M = B, one after another, from one factorization.

    Each ridge must be above zero.

    Raises:
        NonFiniteError: G or B holds infinity or not-a-number.
        IllConditionedError: G is zero.
    """
    _require_finite(gram, cross)
    eigenvalues, vectors = torch.linalg.eigh(gram)
    _require_positive(float(eigenvalues[-1]))
    # Rounding may leave the smallest ones slightly below zero.
    spectrum = eigenvalues.clamp_min(0)
    turned = vectors.mT @ cross
    for ridge in ridges:
        yield LeastSquares(
            solution=vectors @ (turned / (spectrum + ridge)[:, None]),
            rank=gram.shape[0],
            condition=float((spectrum[-1] + ridge) / (spectrum[0] + ridge)),
            method="eigen",
        )


def _require_positive(largest: float) -> None:
    if not largest > 0:
        raise IllConditionedError("The activations at the boundary are zero, so nothing can be fitted.")


def _eigen_solve(gram: Tensor, cross: Tensor, cutoff: float) -> LeastSquares:
    eigenvalues, vectors = torch.linalg.eigh(gram)
    largest = float(eigenvalues[-1])
    _require_positive(largest)
    kept = eigenvalues > cutoff * largest
    basis, spectrum = vectors[:, kept], eigenvalues[kept]
    return LeastSquares(
        solution=basis @ ((basis.mT @ cross) / spectrum[:, None]),
        rank=int(kept.sum()),
        condition=largest / float(spectrum[0]),
        method="eigen",
    )


def residual_energy(
    solution: Float64[Tensor, "hidden target"],
    gram: Float64[Tensor, "hidden hidden"],
    cross: Float64[Tensor, "hidden target"],
    energy: float,
) -> float:
    """||XM - D||_F^2 = <M, GM> - 2 <M, B> + ||D||_F^2, without a second look at X and D.

    The terms cancel where the fit is good: the result is exact to about 1e-10 x energy, and is
    never negative.
    """
    quadratic = torch.sum(solution * (gram @ solution))
    linear = torch.sum(solution * cross)
    return max(float(quadratic - 2 * linear) + energy, 0.0)


def diagonal_residual_energy(
    solution: Float64[Tensor, " hidden"],
    gram: Float64[Tensor, " hidden"],
    cross: Float64[Tensor, " hidden"],
    energy: float,
) -> float:
    """The same for a diagonal M: all three by their diagonals."""
    return max(float(torch.sum(solution * (solution * gram - 2 * cross))) + energy, 0.0)


def symmetric_shares(matrix: Float64[Tensor, "hidden hidden"]) -> tuple[float, float]:
    """(||M + M'|| / 2||M||, ||M - M'|| / 2||M||) in the Frobenius norm; zeros for M = 0.

    The two parts are orthogonal: the squares of the shares add up to one.
    """
    norm = float(torch.linalg.matrix_norm(matrix))
    if norm == 0:
        return 0.0, 0.0
    symmetric = float(torch.linalg.matrix_norm(matrix + matrix.mT)) / (2 * norm)
    antisymmetric = float(torch.linalg.matrix_norm(matrix - matrix.mT)) / (2 * norm)
    return symmetric, antisymmetric


def _require_finite(*matrices: Tensor) -> None:
    if not all(bool(torch.isfinite(matrix).all()) for matrix in matrices):
        raise NonFiniteError("The calibration sums hold infinity or not-a-number.")
