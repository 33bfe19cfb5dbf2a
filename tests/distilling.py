"""A lively model of a family, its cut, its text, and a student with its lessons."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.calibration import Calibrated
from ghosted_core.data import Windows
from ghosted_core.distillation.finetuning import Finetuned, finetune
from ghosted_core.distillation.progress import Progress
from ghosted_core.distillation.store import TaughtFile
from ghosted_core.distillation.student import Student
from ghosted_core.distillation.teaching import Classroom, Teacher, teach
from ghosted_core.distillation.training import Heard, Training
from ghosted_core.plan import PruningPlan
from ghosted_core.quality import Repair
from ghosted_core.recorder import NullRecorder, Recorder, Stage, StageScope
from ghosted_core.spec import Finetune
from ghosted_core.stage_cache import StageCache
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.testing import tiny_model
from ghosted_core.texts import Texts
from tests.repairing import Untimed

LENGTH = 24


def lively(model_type: str, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> PreTrainedModel:
    """A random model whose layers turn the stream visibly: training then has something to do."""
    model = tiny_model(model_type, seed=seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(4)
    return model.to(dtype)


def random_tokens(windows: int, *, seed: int, length: int = LENGTH) -> Windows:
    generator = torch.Generator().manual_seed(seed)
    return Windows(torch.randint(3, 290, (windows, length), generator=generator), {"seed": seed})


def texts(*, windows: int = 6, held_out: int = 3) -> Texts:
    """Windows to train on and to test on; nothing is calibrated."""
    calibration = random_tokens(1, seed=1)
    return Texts(
        calibration,
        calibration,
        None,
        training=random_tokens(windows, seed=2),
        training_held_out=random_tokens(held_out, seed=3),
    )


def operators(model: PreTrainedModel, plan: PruningPlan, *, scale: float = 0.05) -> Repair:
    """Some operator at each cut."""
    width = model.config.get_text_config().hidden_size
    generator = torch.Generator().manual_seed(5)
    made = {
        boundary: scale * torch.randn(width, width, generator=generator, dtype=torch.float64)
        for boundary in plan.boundaries
    }
    return Repair(made, {})


def settings(**changes: Any) -> Finetune:
    """Few steps, far apart enough to see them."""
    fields = {"sequences": 6, "held_out_sequences": 3, "epochs": 2, "learning_rate": 3e-3, "top_k": 20}
    fields["patience"] = 100
    return Finetune.model_validate(fields | changes)


@dataclass
class Nothing:
    """Remembers nothing."""

    def recall(self, _read: Any) -> Progress | None:
        return None

    def keep(self, _entry: Any) -> None:
        pass


@dataclass
class School:
    """A teacher's answers on disk, and a training that has not begun."""

    model: PreTrainedModel
    plan: PruningPlan
    student: Student
    lessons: TaughtFile
    training: Training

    def batch(self, *numbers: int) -> tuple[Tensor, Any]:
        """Windows and what is known of them."""
        return self.lessons.take(numbers, torch.device("cpu"))


def school(
    model: PreTrainedModel,
    removed: list[int],
    folder: Path,
    wanted: Finetune | None = None,
    repair: Repair | None = None,
) -> School:
    """Everything up to the first step."""
    wanted = wanted or settings()
    plan = PruningPlan.from_removed(removed, layer_count=6)
    student = Student(model, plan, repair or operators(model, plan), wanted)
    teacher = Teacher(model, student, wanted)
    room = Classroom(folder, Keeping.nothing(), StageScope(Stage.FINETUNE, NullRecorder()))
    lessons, test = (
        teach(teacher, windows, name, room)
        for name, windows in (("a", random_tokens(6, seed=2)), ("b", random_tokens(3, seed=3)))
    )
    heard = Heard(lambda _: None, lambda _point, _best: None)
    return School(model, plan, student, lessons, Training(wanted, student, lessons, test, Nothing(), heard))


def finetuned(
    model: PreTrainedModel,
    removed: list[int],
    scratch: Path,
    wanted: Finetune | None = None,
    *,
    repair: Repair | None = None,
    cache: StageCache | None = None,
    recorder: Recorder | None = None,
) -> Finetuned:
    """The whole stage."""
    plan = PruningPlan.from_removed(removed, layer_count=6)
    told = recorder or NullRecorder()
    keeping = Keeping.nothing() if cache is None else Keeping(cache, {}, told)
    job = Calibrated(model, texts(), scratch, keeping)
    return finetune(wanted or settings(), job, plan, repair or operators(model, plan), told, Untimed())
