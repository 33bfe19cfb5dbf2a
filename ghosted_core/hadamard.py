"""Orthonormal Hadamard matrices, and what stands in for them where none is known."""

import functools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """An orthonormal `matrix` of float64, and what it is called in reports."""

    name: str
    matrix: Float64[Tensor, "order order"]


@functools.lru_cache(maxsize=2)
def rotation(order: int) -> Rotation:
    """The rotation of `order`: a Hadamard matrix over sqrt(order), else a cosine transform.

    A Hadamard matrix is built where the order is a power of two times one Paley I order (1, or q + 1
    for a prime q = 3 mod 4). For other orders the DCT-II takes its place: orthonormal, and every
    channel still takes part in every output, though not with equal weight.
    """
    core = paley_core(order)
    if core is None:
        return Rotation("orthonormal DCT-II (no Hadamard matrix of this order is built)", _cosines(order))
    signs = torch.kron(_sylvester(order // core), _paley(core))
    return Rotation(f"Hadamard: Sylvester {order // core} x Paley {core}", signs / math.sqrt(order))


def paley_core(order: int) -> int | None:
    """The smallest Paley I order that is `order` over a power of two; None if there is none."""
    doublings = (order & -order).bit_length() - 1
    candidates = (order >> exponent for exponent in range(doublings, -1, -1))
    return next((core for core in candidates if _is_paley(core)), None)


def _is_paley(order: int) -> bool:
    return order == 1 or ((order - 1) % 4 == 3 and _is_prime(order - 1))  # noqa: PLR2004 - Paley I's condition


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _sylvester(order: int) -> Tensor:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    block = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    while matrix.shape[0] < order:
        matrix = torch.kron(block, matrix)
    return matrix


def _paley(order: int) -> Tensor:
    """I + S with S skew: Jacobsthal's matrix of the quadratic characters, with a border of ones."""
    if order == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    prime = order - 1
    character = torch.full((prime,), -1.0, dtype=torch.float64)
    character[(torch.arange(1, prime) ** 2) % prime] = 1.0
    character[0] = 0.0
    index = torch.arange(prime)
    skew = torch.zeros(order, order, dtype=torch.float64)
    skew[0, 1:], skew[1:, 0] = 1.0, -1.0
    skew[1:, 1:] = character[(index[:, None] - index[None, :]) % prime]
    return skew + torch.eye(order, dtype=torch.float64)


def _cosines(order: int) -> Tensor:
    index = torch.arange(order, dtype=torch.float64)
    matrix = torch.cos(math.pi / order * (index[:, None] + 0.5) * index[None, :]) * math.sqrt(2 / order)
    matrix[:, 0] = 1 / math.sqrt(order)
    return matrix
