import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ghosted_core.distillation.targets import Objective, Targets, divergence, targets_of

POSITIONS, VOCABULARY, KEPT = 7, 50, 8


def logits(generator: torch.Generator, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(POSITIONS, VOCABULARY, generator=generator)


def outcomes(logits: Tensor, tokens: Tensor) -> Tensor:
    """ln of the probabilities of `tokens` and of all others together, in float64, the slow way."""
    probabilities = logits.double().softmax(dim=1)
    kept = probabilities.gather(1, tokens.long())
    return torch.cat([kept, 1 - kept.sum(dim=1, keepdim=True)], dim=1).log()


def slow_loss(student: Tensor, teacher: Tensor, targets: Targets, temperature: float) -> Tensor:
    expected = outcomes(teacher / temperature, targets.tokens)
    found = outcomes(student / temperature, targets.tokens)
    return (expected.exp() * (expected - found)).sum()


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_targets_are_the_likeliest_tokens_and_one_bucket(
    generator: torch.Generator, temperature: float
) -> None:
    """At temperature 1 and at that of the training, they are the probabilities of k + 1 outcomes."""
    teacher = logits(generator)
    found = targets_of(teacher, KEPT, temperature)
    assert torch.equal(found.tokens.long(), teacher.topk(KEPT).indices)
    for t in (1.0, temperature):
        expected = outcomes(teacher / t, found.tokens)
        torch.testing.assert_close(found.at(t).double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("cross_entropy", [0.0, 0.3])
def test_the_gradient_is_that_of_autograd(
    generator: torch.Generator, temperature: float, cross_entropy: float
) -> None:
    """Loss and gradient of the written-down formula equal those that autograd finds in float64."""
    teacher, student = logits(generator), logits(generator)
    targets = targets_of(teacher, KEPT, temperature)
    following = torch.randint(0, VOCABULARY, (POSITIONS,), generator=generator)
    following[3] = -1
    loss, gradient = Objective(temperature, cross_entropy).measure(student, targets, following)
    wide = student.double().requires_grad_()
    known = following >= 0
    likelihood = functional.cross_entropy(wide[known], following[known], reduction="sum")
    kl = temperature**2 * slow_loss(wide, teacher.double(), targets, temperature)
    expected = (1 - cross_entropy) * kl + cross_entropy * likelihood
    expected.backward()
    assert wide.grad is not None
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    torch.testing.assert_close(gradient.double(), wide.grad, rtol=1e-3, atol=1e-5)


def test_all_tokens_kept_is_the_whole_divergence(generator: torch.Generator) -> None:
    """With k the vocabulary there is no bucket, and the divergence is that over the vocabulary."""
    teacher, student = logits(generator), logits(generator)
    expected = functional.kl_div(
        student.log_softmax(1), teacher.log_softmax(1), log_target=True, reduction="sum"
    )
    found = divergence(student, targets_of(teacher, 10_000, 1.0))
    assert found == pytest.approx(expected.item(), rel=1e-4)


def test_fewer_tokens_tell_less(generator: torch.Generator) -> None:
    """Merging outcomes never raises a divergence, and of itself a distribution has none."""
    teacher, student = logits(generator), logits(generator)
    found = [divergence(student, targets_of(teacher, k, 1.0)) for k in (1, 5, 20, VOCABULARY)]
    assert found == sorted(found)
    assert divergence(teacher, targets_of(teacher, 5, 1.0)) == pytest.approx(0, abs=1e-4)


def test_a_student_that_is_sure_has_finite_loss_and_gradient() -> None:
    """Where the student leaves nothing to the bucket, nothing overflows."""
    student = torch.full((1, VOCABULARY), -200.0)
    student[0, 3] = 200.0
    teacher = torch.zeros(1, VOCABULARY)
    teacher[0, 3] = 1.0
    loss, gradient = Objective().measure(student, targets_of(teacher, KEPT, 1.0), torch.tensor([-1]))
    assert math.isfinite(loss)
    assert torch.isfinite(gradient).all()
