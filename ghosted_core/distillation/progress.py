"""How far training is: everything that it needs to go on as if it had not been interrupted."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from ghosted_core.stage_cache.entry import Entry

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Point:
    """What was found after `step` steps: loss a token since the look before, divergence on held-out text.

    `loss` is None before the first step.
    """

    step: int
    loss: float | None
    held_out_kl: float


@dataclass
class Progress:
    """Steps done, looks taken, and the best of them; `seconds` over all runs together.

    `diverged` says where training came to figures that are no numbers, which ended it.
    """

    step: int = 0
    loss_sum: float = 0.0
    loss_tokens: int = 0
    seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)
    best: list[Tensor] = field(default_factory=list)
    diverged: str | None = None

    @property
    def best_point(self) -> Point:
        """The look at which divergence was least, the first of equals."""
        return min(self.curve, key=lambda point: (point.held_out_kl, point.step))

    @property
    def looks_since_best(self) -> int:
        """How many looks have found nothing better."""
        return len(self.curve) - 1 - self.curve.index(self.best_point)

    def mean_loss(self) -> float | None:
        """A token, since the last look; forgets what it has told."""
        mean = self.loss_sum / self.loss_tokens if self.loss_tokens else None
        self.loss_sum, self.loss_tokens = 0.0, 0
        return mean


def pack(progress: Progress, masters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> Entry:
    """All of it as tensors and text."""
    tensors = {f"best.{index}": tensor for index, tensor in enumerate(progress.best)}
    for index, master in enumerate(masters):
        tensors[f"master.{index}"] = master.detach()
        for moment in MOMENTS:
            if moment in optimizer.state[master]:
                tensors[f"{moment}.{index}"] = optimizer.state[master][moment]
    facts = {
        "step": progress.step,
        "loss_sum": progress.loss_sum,
        "loss_tokens": progress.loss_tokens,
        "seconds": progress.seconds,
        "curve": [asdict(point) for point in progress.curve],
    }
    return Entry(tensors, json.dumps(facts))


def unpack(
    entry: Entry, masters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer, most_steps: int
) -> Progress:
    """What `pack` was given; masters and moments have their values of then.

    Raises:
        ValueError, LookupError, TypeError: the entry is of another training; nothing has changed then.
    """
    facts = json.loads(entry.facts)
    progress = Progress(
        step=int(facts["step"]),
        loss_sum=float(facts["loss_sum"]),
        loss_tokens=int(facts["loss_tokens"]),
        seconds=float(facts["seconds"]),
        curve=[Point(**point) for point in facts["curve"]],
        best=[entry.tensors[f"best.{index}"].to(master.device) for index, master in enumerate(masters)],
    )
    if not progress.curve or not 0 <= progress.step <= most_steps:
        raise ValueError("progress of another training")
    kinds = ("master", *(MOMENTS if progress.step else ()))
    values = {kind: [entry.tensors[f"{kind}.{index}"] for index in range(len(masters))] for kind in kinds}
    for found in (progress.best, *values.values()):
        _check(found, masters)
    for index, master in enumerate(masters):
        with torch.no_grad():
            master.copy_(values["master"][index])
        if progress.step:
            optimizer.state[master] = {
                "step": torch.tensor(float(progress.step)),
                **{moment: values[moment][index].to(master.device) for moment in MOMENTS},
            }
    return progress


def _check(found: Sequence[Tensor], masters: Sequence[nn.Parameter]) -> None:
    for tensor, master in zip(found, masters, strict=True):
        if tensor.shape != master.shape or tensor.dtype != master.dtype:
            raise ValueError("tensors of another training")
        if not math.isfinite(float(tensor.abs().max())):
            raise ValueError("tensors that are not finite")
