"""What is kept of the teacher's answer at a position, and how far another answer is from it.

Of a distribution over the vocabulary the k likeliest tokens are kept, and the rest as one bucket. The
divergence of two distributions over these k + 1 outcomes is exact for the kept tokens, and at most that
over the whole vocabulary: what differs within the bucket does not show.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

# What is widened to float32 at a time: this many bytes of logits.
CHUNK_BYTES = 1 << 26
# The bucket's share, as far as float32 can tell it from 0.
LEAST_SHARE = 1e-7


def chunk_positions(vocabulary: int) -> int:
    """Positions whose float32 logits are held at once."""
    return max(1, CHUNK_BYTES // (4 * vocabulary))


@dataclass(frozen=True)
class Targets:
    """ln p of the teacher's `tokens`, likeliest first, and of all others together.

    `rest` has two columns, both logarithms relative to the whole distribution at temperature 1: the
    bucket's share, and the sum of p^(1/T) over the bucket.
    """

    tokens: Int[Tensor, "positions kept"]
    kept: Float[Tensor, "positions kept"]
    rest: Float[Tensor, "positions 2"]

    def at(self, temperature: float) -> Float[Tensor, "positions outcomes"]:
        """Logarithms of the probabilities of the kept tokens and of the bucket, with all logits over T.

        T is 1 or the temperature that the targets were made for.
        """
        column = 0 if temperature == 1 else 1
        scaled = torch.cat([self.kept / temperature, self.rest[:, column : column + 1]], dim=1)
        return scaled.log_softmax(dim=1)


@torch.no_grad()
def targets_of(logits: Float[Tensor, "positions vocabulary"], k: int, temperature: float) -> Targets:
    """The targets that a teacher's logits make, k at most the vocabulary."""
    # Of the logits themselves: a sum over the vocabulary is the dear part, so there is one a temperature.
    tokens = logits.topk(min(k, logits.shape[1]), dim=1).indices
    kept = logits.log_softmax(dim=1, dtype=torch.float32).gather(1, tokens)
    rest = [_others(kept)]
    if temperature != 1:
        # p^(1/T) summed over all tokens is e^(lse(z / T) - lse(z) / T).
        at_temperature = _scaled(logits, temperature).log_softmax(dim=1).gather(1, tokens)
        rest.append(_others(at_temperature) + (kept / temperature - at_temperature)[:, :1])
    return Targets(tokens.int(), kept, torch.cat([rest[0], rest[-1]], dim=1))


@dataclass(frozen=True)
class Objective:
    """(1 - c) T^2 KL(teacher || student) at temperature T + c times the text's negative log-likelihood."""

    temperature: float = 1.0
    cross_entropy: float = 0.0

    def measure(
        self,
        logits: Float[Tensor, "positions vocabulary"],
        targets: Targets,
        following: Int64[Tensor, " positions"],
    ) -> tuple[float, Float[Tensor, "positions vocabulary"]]:
        """The sum over positions, and its gradient for the logits, in float32.

        `following` are the tokens that the text goes on with, -1 where it ends. The gradient is written
        down instead of derived: it takes two copies of the logits where autograd would keep six.
        """
        share = (1 - self.cross_entropy) * self.temperature**2
        divergence, gradient = divergence_gradient(logits, targets, self.temperature, share)
        total = share * divergence
        if self.cross_entropy:
            loss, towards = _likelihood_gradient(logits, following)
            total += self.cross_entropy * loss
            gradient.add_(towards, alpha=self.cross_entropy)
        return total, gradient


def divergence(
    logits: Float[Tensor, "positions vocabulary"], targets: Targets, temperature: float = 1.0
) -> float:
    """The sum over positions of KL(teacher || student), in nats, at the temperature."""
    places = targets.tokens.long()
    kept = _scaled(logits, temperature).log_softmax(dim=1, dtype=torch.float32).gather(1, places)
    return _sum_of_divergences(targets.at(temperature), torch.cat([kept, _others(kept)], dim=1))


def divergence_gradient(
    logits: Float[Tensor, "positions vocabulary"], targets: Targets, temperature: float, factor: float = 1.0
) -> tuple[float, Float[Tensor, "positions vocabulary"]]:
    """The same, and its gradient times `factor`.

    With q the student's probabilities, p_b and q_b the bucket's shares: dKL/dz_j = (q_j - p_j) / T for
    a kept token and q_j (1 - p_b / q_b) / T for another.
    """
    places = targets.tokens.long()
    scaled = _scaled(logits, temperature)
    probabilities = scaled.softmax(dim=1, dtype=torch.float32)
    kept = _kept(scaled, probabilities, places)
    teacher, student = targets.at(temperature), torch.cat([kept, _others(kept)], dim=1)
    total = _sum_of_divergences(teacher, student)
    # Through logarithms: the bucket's share may be 0 for the teacher, never for the student.
    excess = 1 - (teacher[:, -1:] - student[:, -1:]).exp()
    towards = kept.exp() - teacher[:, :-1].exp()
    gradient = probabilities.mul_(excess * (factor / temperature))
    return total, gradient.scatter_(1, places, towards * (factor / temperature))


def _kept(scaled: Tensor, probabilities: Tensor, places: Tensor) -> Tensor:
    """Logarithms of the probabilities at `places`, without another sum over the vocabulary.

    ln q_j = z_j - z_max + ln q_max: the logarithm of q_j itself would be lost where q_j is too small.
    """
    largest, where = probabilities.max(dim=1, keepdim=True)
    return scaled.gather(1, places).float() - scaled.gather(1, where).float() + largest.log()


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return logits if temperature == 1 else logits.float() / temperature


def _others(kept: Tensor) -> Tensor:
    """The logarithm of what the kept tokens leave of 1, at least of LEAST_SHARE."""
    others = 1 - kept.double().exp().sum(dim=1, keepdim=True)
    return others.clamp_min(LEAST_SHARE).log().float()


def _sum_of_divergences(teacher: Tensor, student: Tensor) -> float:
    return float((teacher.exp() * (teacher - student)).sum(dtype=torch.float64))


def _likelihood_gradient(logits: Tensor, following: Tensor) -> tuple[float, Tensor]:
    known = following >= 0
    log_probabilities = logits.log_softmax(dim=1, dtype=torch.float32)
    places = following.clamp_min(0)[:, None]
    losses = -log_probabilities.gather(1, places)[:, 0]
    gradient = log_probabilities.exp_()
    gradient.scatter_add_(1, places, -torch.ones_like(losses)[:, None])
    gradient.mul_(known[:, None])
    return float(losses[known].sum(dtype=torch.float64)), gradient
