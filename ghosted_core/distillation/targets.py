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
# ln of the share of the bucket is kept away from ln 0, where it has no gradient.
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
    log_probabilities = logits.float().log_softmax(dim=1)
    kept, tokens = log_probabilities.topk(min(k, logits.shape[1]), dim=1)
    others = log_probabilities.scatter(1, tokens, -torch.inf)
    rest = torch.stack([(others / t).logsumexp(dim=1) for t in (1.0, temperature)], dim=1)
    return Targets(tokens.int(), kept, rest)


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
        divergence, gradient = divergence_gradient(logits, targets, self.temperature)
        share = (1 - self.cross_entropy) * self.temperature**2
        total, gradient = share * divergence, gradient.mul_(share)
        if self.cross_entropy:
            loss, towards = _likelihood_gradient(logits, following)
            total, gradient = (
                total + self.cross_entropy * loss,
                gradient.add_(towards, alpha=self.cross_entropy),
            )
        return total, gradient


def divergence(
    logits: Float[Tensor, "positions vocabulary"], targets: Targets, temperature: float = 1.0
) -> float:
    """The sum over positions of KL(teacher || student), in nats, at the temperature."""
    teacher, student = targets.at(temperature), _outcomes(_scaled(logits, temperature), targets)
    return _sum_of_divergences(teacher, student)


def divergence_gradient(
    logits: Float[Tensor, "positions vocabulary"], targets: Targets, temperature: float
) -> tuple[float, Float[Tensor, "positions vocabulary"]]:
    """The same, and its gradient.

    With q the student's probabilities, p_b and q_b the bucket's shares: dKL/dz_j = (q_j - p_j) / T for
    a kept token and q_j (1 - p_b / q_b) / T for another.
    """
    scaled = _scaled(logits, temperature)
    teacher, student = targets.at(temperature), _outcomes(scaled, targets)
    total = _sum_of_divergences(teacher, student)
    # Through logarithms: the bucket's share may be 0 for the teacher, never for the student.
    excess = 1 - (teacher[:, -1:] - student[:, -1:]).exp()
    gradient = scaled.softmax(dim=1).mul_(excess)
    gradient.scatter_(1, targets.tokens.long(), student[:, :-1].exp() - teacher[:, :-1].exp())
    return total, gradient.div_(temperature)


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    wide = logits.float()
    return wide if temperature == 1 else wide / temperature


def _outcomes(scaled: Tensor, targets: Targets) -> Tensor:
    """Logarithms of the student's probabilities of the kept tokens and of the bucket."""
    kept = scaled.gather(1, targets.tokens.long()) - scaled.logsumexp(dim=1, keepdim=True)
    others = 1 - kept.double().exp().sum(dim=1, keepdim=True)
    return torch.cat([kept, others.clamp_min(LEAST_SHARE).log().float()], dim=1)


def _sum_of_divergences(teacher: Tensor, student: Tensor) -> float:
    probabilities = teacher.exp()
    # 0 ln 0 = 0: without a bucket, where k is the vocabulary.
    terms = (probabilities * (teacher - student)).masked_fill(probabilities == 0, 0.0)
    return float(terms.sum(dtype=torch.float64))


def _likelihood_gradient(logits: Tensor, following: Tensor) -> tuple[float, Tensor]:
    known = following >= 0
    log_probabilities = logits.float().log_softmax(dim=1)
    places = following.clamp_min(0)[:, None]
    losses = -log_probabilities.gather(1, places)[:, 0]
    gradient = log_probabilities.exp_()
    gradient.scatter_add_(1, places, -torch.ones_like(losses)[:, None])
    gradient.mul_(known[:, None])
    return float(losses[known].sum(dtype=torch.float64)), gradient
