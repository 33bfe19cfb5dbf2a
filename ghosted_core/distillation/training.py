"""The training itself: steps, looks at held-out text, and an end in time."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ghosted_core.batching import BATCH_TOKENS
from ghosted_core.distillation.progress import Point, Progress, pack, unpack
from ghosted_core.distillation.store import Taught, TaughtFile
from ghosted_core.distillation.student import Student
from ghosted_core.distillation.targets import Objective, Targets, chunk_positions, divergence
from ghosted_core.errors import NonFiniteError
from ghosted_core.spec import Finetune
from ghosted_core.stage_cache.entry import Entry

CLIP_NORM = 1.0
# On the way back float16 would lose gradients of the mean loss, which are small: they are made larger there.
HALF_SCALE = 256.0
# What the cosine schedule ends at, of the learning rate.
FLOOR = 1 / 20
# Much less than this is lost in a crash; and saving takes at most a twentieth of the time.
SAVE_SECONDS, SAVE_SHARE = 60.0, 20.0


class Memory(Protocol):
    """Where progress outlives the run."""

    def recall(self, read: Callable[[Entry], Progress]) -> Progress | None:
        """What `read` makes of what an earlier run left; None if it left nothing."""

    def keep(self, entry: Entry) -> None:
        """Later runs find it."""


@dataclass(frozen=True)
class Heard:
    """Whom training tells: of tokens that are behind it, and of every look, with whether it was the best."""

    advance: Callable[[int], None]
    look: Callable[[Point, bool], None]


@dataclass
class Training:
    """A student, what it learns and what it is tested on."""

    settings: Finetune
    student: Student
    lessons: TaughtFile
    test: TaughtFile
    memory: Memory
    heard: Heard
    clock: Callable[[], float] = time.monotonic
    _resumed_at: float = field(init=False, default=0.0)
    _saved_at: float = field(init=False, default=0.0)
    _saving_seconds: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        settings = self.settings
        self.optimizer = torch.optim.AdamW(
            self.student.masters,
            lr=settings.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=settings.weight_decay,
        )
        self.objective = Objective(settings.temperature, settings.cross_entropy)

    def run(self) -> Progress:
        """Train until the end, or until it helps no longer or diverges; the best weights are in the answer.

        An interrupted run that finds its progress again ends with the same bits.

        Raises:
            NonFiniteError: a loss, a gradient or a divergence is infinite or not a number, and no look
                before that was better than the first.
        """
        self._resumed_at = self._saved_at = self.clock()
        progress = self.memory.recall(self._read) or self._begin()
        recalled = progress.step
        try:
            self._train(progress)
        except NonFiniteError as error:
            if not progress.best_point.step:
                raise
            # Nothing is saved of it: whoever goes on from an earlier step comes to the same end.
            progress.diverged = error.message
            self._count_seconds(progress)
            return progress
        if progress.step > recalled:
            self._save(progress)
        return progress

    def _train(self, progress: Progress) -> None:
        for numbers in self._batches(progress.step):
            if self._has_ended(progress):
                break
            self._step(progress, numbers)
            if progress.step % self.settings.steps_between_looks == 0 or progress.step == self.settings.steps:
                self._look(progress)
            self._save_in_time(progress)

    def _has_ended(self, progress: Progress) -> bool:
        return progress.looks_since_best >= self.settings.patience

    def _read(self, entry: Entry) -> Progress:
        progress = unpack(entry, self.student.masters, self.optimizer, self.settings.steps)
        self.heard.advance(self.settings.windows_seen(progress.step) * self.lessons.windows.shape[1])
        self.heard.advance(len(progress.curve) * self.test.windows.numel())
        return progress

    def _begin(self) -> Progress:
        progress = Progress()
        self._look(progress)
        return progress

    def _batches(self, done: int) -> Iterator[Sequence[int]]:
        """Windows of every step after the first `done`, each epoch in an order of its own."""
        step = 0
        for epoch in range(self.settings.epochs):
            generator = torch.Generator().manual_seed((self.settings.seed + 1_000_003 * epoch) % 2**63)
            order = torch.randperm(len(self.lessons.windows), generator=generator).tolist()
            for start in range(0, len(order), self.settings.batch_size):
                step += 1
                if step > done:
                    yield order[start : start + self.settings.batch_size]

    def rate(self, step: int) -> float:
        """The learning rate of the step after the first `step`."""
        settings = self.settings
        if settings.schedule == "constant":
            return settings.learning_rate
        share = (1 + math.cos(math.pi * step / settings.steps)) / 2
        return settings.learning_rate * (FLOOR + (1 - FLOOR) * share)

    def _step(self, progress: Progress, numbers: Sequence[int]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(progress.step)
        self.optimizer.zero_grad()
        tokens, taught = self.lessons.take(numbers, self.student.device)
        loss = self.backward(tokens, taught)
        norm = float(torch.nn.utils.clip_grad_norm_(self.student.masters, CLIP_NORM))
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NonFiniteError(
                f"Step {progress.step + 1} of the training has a loss of {loss:.4g} "
                f"and a gradient of norm {norm:.4g}.",
                advice="Lower 'finetune.learning_rate', or run in float32 or bfloat16.",
            )
        self.optimizer.step()
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_tokens += tokens.numel()
        self.heard.advance(tokens.numel())

    @torch.enable_grad()
    def backward(self, tokens: Tensor, taught: Taught) -> float:
        """The gradients of the mean loss a token are in the masters; returns the sum of the losses.

        Logits of some positions exist at a time: the head is gone through forth and back in parts, and
        the layers after it once.
        """
        self.student.put_in_place()
        answer = self.student.answer(tokens, taught.states.view(*tokens.shape, -1))
        cut = answer.detach().requires_grad_()
        total, scale = 0.0, HALF_SCALE if self.student.model.dtype == torch.float16 else 1.0
        for part in _chunks(len(cut), self._chunk):
            logits = self.student.logits(cut[part])
            loss, gradient = self.objective.measure(
                logits.detach(), _targets(taught, part), _following(tokens)[part]
            )
            total += loss
            torch.autograd.backward(logits, gradient.mul_(scale / tokens.numel()).to(logits.dtype))
        torch.autograd.backward(answer, cut.grad)
        for master in self.student.masters:
            if master.grad is not None:
                master.grad.div_(scale)
        return total

    @property
    def _chunk(self) -> int:
        return chunk_positions(self.student.model.config.get_text_config().vocab_size)

    def _look(self, progress: Progress) -> None:
        found = self.held_out_divergence()
        if not math.isfinite(found):
            raise NonFiniteError(f"The divergence on held-out text is {found} after {progress.step} steps.")
        point = Point(progress.step, progress.mean_loss(), found)
        is_best = not progress.curve or found < progress.best_point.held_out_kl
        progress.curve.append(point)
        if is_best:
            progress.best = [master.detach().clone() for master in self.student.masters]
        self.heard.look(point, is_best)

    @torch.no_grad()
    def held_out_divergence(self) -> float:
        """Mean KL(teacher || student) a token over the k + 1 outcomes at temperature 1, in nats."""
        self.student.put_in_place()
        count, length = self.test.windows.shape
        total = 0.0
        for numbers in _chunks(count, max(1, BATCH_TOKENS // length)):
            tokens, taught = self.test.take(range(numbers.start, numbers.stop), self.student.device)
            answer = self.student.answer(tokens, taught.states.view(*tokens.shape, -1))
            for part in _chunks(len(answer), self._chunk):
                total += divergence(self.student.logits(answer[part]), _targets(taught, part))
            self.heard.advance(tokens.numel())
        return total / self.test.windows.numel()

    def _save_in_time(self, progress: Progress) -> None:
        pause = max(SAVE_SECONDS, SAVE_SHARE * self._saving_seconds)
        if self.clock() - self._saved_at >= pause:
            self._save(progress)

    def _save(self, progress: Progress) -> None:
        self._count_seconds(progress)
        self.memory.keep(pack(progress, self.student.masters, self.optimizer))
        self._saved_at = self.clock()
        self._saving_seconds = self._saved_at - self._resumed_at

    def _count_seconds(self, progress: Progress) -> None:
        now = self.clock()
        progress.seconds += now - self._resumed_at
        self._resumed_at = now


def _targets(taught: Taught, part: slice) -> Targets:
    found = taught.targets
    return Targets(found.tokens[part], found.kept[part], found.rest[part])


def _following(tokens: Tensor) -> Tensor:
    """The token after each position, -1 at the end of a window."""
    ends = torch.full_like(tokens[:, :1], -1)
    return torch.cat([tokens[:, 1:], ends], dim=1).flatten()


def _chunks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
