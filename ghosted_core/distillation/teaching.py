"""The one pass of the teacher: its answers and the states at the first cut go to disk."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.activations import require_scratch
from ghosted_core.data import Windows, batches
from ghosted_core.distillation.store import Taught, TaughtFile, position_bytes
from ghosted_core.distillation.student import Student
from ghosted_core.distillation.targets import Targets, chunk_positions, targets_of
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.heads import Head
from ghosted_core.model.sharing import shared_depth
from ghosted_core.model.skipping import LayerSkipper
from ghosted_core.quality import Repair
from ghosted_core.recorder import StageScope
from ghosted_core.spec import Finetune
from ghosted_core.stage_cache.entry import Entry, tensor_bytes
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import tokens_digest

ANSWERS = "teacher's answers"
# One entry of the stage cache holds about so many tokens, and they are kept at all up to so many bytes.
ENTRY_TOKENS = 16_384
KEEP_BYTES = 1 << 30


class Teacher:
    """The dense model, and the student that it teaches."""

    def __init__(self, dense: PreTrainedModel, student: Student, settings: Finetune) -> None:
        family = student.family
        self.settings = settings
        self.student = student
        self.width = dense.config.get_text_config().hidden_size
        self.vocabulary = dense.config.get_text_config().vocab_size
        self.item_bytes = dense.dtype.itemsize
        self._decoder = dense.get_submodule(family.decoder)
        self._stream = ResidualStream(dense, family)
        self._skipper = LayerSkipper(dense, family)
        self._head = Head(dense, family)
        # A repair that is folded into weights before the cut makes states of its own there.
        self.is_shared = shared_depth(dense, student.model, family) >= student.depth
        self._student_stream = ResidualStream(student.model, family)

    @property
    def bytes_a_position(self) -> int:
        """What a position takes on disk."""
        return position_bytes(self.width, self.item_bytes, min(self.settings.top_k, self.vocabulary))

    @torch.no_grad()
    def teach(self, batch: Tensor) -> Taught:
        """State and targets of each position of `batch`, (windows, length), on the CPU.

        With a shared way to the cut each layer of the dense model runs once.
        """
        tokens, depth = batch.to(self.student.device), self.student.depth
        if self.is_shared:
            state = self._stream.read(tokens, [depth])[depth]
            with self._skipper.entering(depth, state):
                answer: Tensor = self._decoder(input_ids=tokens, use_cache=False)[0]
        else:
            state = self._student_stream.read(tokens, [depth])[depth]
            answer = self._decoder(input_ids=tokens, use_cache=False)[0]
        return Taught(state.flatten(0, 1).cpu(), self._targets(answer.flatten(0, 1)))

    def _targets(self, answer: Tensor) -> Targets:
        k, temperature = self.settings.top_k, self.settings.temperature
        found = [
            targets_of(self._head(part), k, temperature)
            for part in torch.split(answer, chunk_positions(self.vocabulary))
        ]
        return Targets(
            torch.cat([one.tokens for one in found]).cpu(),
            torch.cat([one.kept for one in found]).cpu(),
            torch.cat([one.rest for one in found]).cpu(),
        )


@dataclass(frozen=True)
class Classroom:
    """Where what is taught lies, and what earlier runs left of it."""

    folder: Path
    keeping: Keeping
    scope: StageScope


def teach(teacher: Teacher, windows: Windows, name: str, room: Classroom) -> TaughtFile:
    """All of `windows`, run through the teacher or taken over from an earlier run, on disk.

    Raises:
        DiskFullError: they will not fit, or did not.
    """
    needed = windows.tokens.numel() * teacher.bytes_a_position
    require_scratch(room.folder, needed)
    keeping = room.keeping if needed <= KEEP_BYTES else Keeping.nothing()
    file = TaughtFile(room.folder / name, windows.tokens)
    known = tokens = 0
    for part in _parts(windows):
        question = _question(teacher, part)
        found = keeping.recall(question, ANSWERS, partial(_read, part=part, teacher=teacher))
        if found is None:
            found = _joined([teacher.teach(batch) for batch in room.scope.track(batches(part))])
            keeping.keep(question, ANSWERS, Entry(found.tensors()))
        else:
            known += part.tokens.numel()
            room.scope.advance(part.tokens.numel())
        tokens += part.tokens.numel()
        file.append(found)
    if known:
        keeping.say(
            f"{known:,} of {tokens:,} tokens of the teacher's answers were taken from an earlier run."
        )
    return file


def _parts(windows: Windows) -> Iterator[Windows]:
    count, length = windows.tokens.shape
    size = max(1, ENTRY_TOKENS // length)
    for start in range(0, count, size):
        yield Windows(windows.tokens[start : start + size], {})


def _joined(parts: list[Taught]) -> Taught:
    tensors = [part.tensors() for part in parts]
    return Taught.of({name: torch.cat([one[name] for one in tensors]) for name in tensors[0]})


def _question(teacher: Teacher, part: Windows) -> dict[str, Any]:
    settings, student = teacher.settings, teacher.student
    return {
        "stage": "finetune",
        "part": "teacher",
        "depth": student.depth,
        "top_k": settings.top_k,
        "temperature": settings.temperature,
        "folded": None if teacher.is_shared else repair_digest(student.repair),
        "tokens": tokens_digest(part.tokens),
    }


def _read(entry: Entry, part: Windows, teacher: Teacher) -> Taught:
    found, positions = Taught.of(dict(entry.tensors)), part.tokens.numel()
    kept = min(teacher.settings.top_k, teacher.vocabulary)
    shapes = {"states": teacher.width, "tokens": kept, "kept": kept, "rest": 2}
    for name, tensor in found.tensors().items():
        if tensor.shape != (positions, shapes[name]):
            raise ValueError(f"'{name}' has another shape")
    return found


def repair_digest(repair: Repair) -> str:
    """SHA-256, in hexadecimal, of all that a repair changes."""
    named = {f"{b.start}-{b.stop}": value for b, value in repair.corrections.items()} | dict(repair.replaced)
    digest = hashlib.sha256()
    for name, value in sorted(named.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)};".encode())
        digest.update(tensor_bytes(value.detach().cpu()))
    return digest.hexdigest()
