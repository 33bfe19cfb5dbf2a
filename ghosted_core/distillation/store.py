"""Text that was run through the teacher, on disk: what training reads instead of running it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ghosted_core.activations import ActivationFile
from ghosted_core.distillation.targets import Targets

PARTS = ("states", "tokens", "kept", "rest")


@dataclass(frozen=True)
class Taught:
    """Some windows: the state that enters the student's first own layer, and the teacher's targets.

    States are (positions, hidden), positions of all windows one after another.
    """

    states: Tensor
    targets: Targets

    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        found = self.targets
        return {"states": self.states, "tokens": found.tokens, "kept": found.kept, "rest": found.rest}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> "Taught":
        """What `tensors` gave."""
        return cls(tensors["states"], Targets(tensors["tokens"], tensors["kept"], tensors["rest"]))


class TaughtFile:
    """Windows of `length` tokens in a folder, appended in order, read by number. None is held in memory."""

    def __init__(self, folder: Path, windows: Tensor) -> None:
        folder.mkdir()
        self.windows = windows
        self._files = {part: ActivationFile(folder / part) for part in PARTS}
        self._rows: dict[str, Tensor] = {}

    def append(self, taught: Taught) -> None:
        """The next windows.

        Raises:
            DiskFullError: the disk filled up.
        """
        for part, tensor in taught.tensors().items():
            self._files[part].append(tensor)
        self._rows.clear()

    def take(self, numbers: Sequence[int], device: torch.device) -> tuple[Tensor, Taught]:
        """The tokens of these windows, (windows, length), and what is known of them, on `device`."""
        length = self.windows.shape[1]
        rows = torch.cat([torch.arange(n * length, (n + 1) * length) for n in numbers])
        if not self._rows:
            self._rows = {part: file.rows() for part, file in self._files.items()}
        found = {part: mapped[rows].to(device) for part, mapped in self._rows.items()}
        return self.windows[list(numbers)].to(device), Taught.of(found)


def position_bytes(width: int, item: int, k: int) -> int:
    """What a position takes: a state of `width` items, k tokens with their logarithms, and the rest."""
    return width * item + k * (4 + 4) + 2 * 4
