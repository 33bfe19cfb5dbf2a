"""From a repaired model to a trained one: the stage of a job."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from ghosted_core.activations import require_scratch, scratch_folder
from ghosted_core.calibration import Calibrated
from ghosted_core.data import Windows
from ghosted_core.distillation.progress import Point, Progress
from ghosted_core.distillation.store import TaughtFile
from ghosted_core.distillation.student import Student, activation_bytes
from ghosted_core.distillation.teaching import Classroom, Teacher, repair_digest, teach
from ghosted_core.distillation.training import Heard, Training
from ghosted_core.errors import InvalidSpecError
from ghosted_core.plan import PruningPlan
from ghosted_core.quality import Repair
from ghosted_core.recorder import Logged, Meter, MetricMeasured, Recorder, Stage, StageScope, stage
from ghosted_core.room import memory_free
from ghosted_core.spec import Finetune
from ghosted_core.stage_cache.entry import Entry
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import tokens_digest

PROGRESS = "steps of the training"


@dataclass(frozen=True)
class Finetuned:
    """The repair after training, and how it went; `report` holds plain JSON values."""

    repair: Repair
    report: dict[str, Any]


def finetune(
    settings: Finetune, job: Calibrated, plan: PruningPlan, repair: Repair, recorder: Recorder, meter: Meter
) -> Finetuned:
    """`repair` trained towards the unpruned model, which runs once over the text.

    Raises:
        UnsupportedRepairError: what is to train does not exist at one of the cuts.
        NonFiniteError: training diverged before it had helped.
        DiskFullError: the scratch folder cannot hold what the teacher says.
    """
    training, held_out = job.texts.training, job.texts.training_held_out
    if training is None or held_out is None:
        raise InvalidSpecError("There is no text to train on.")
    student = Student(job.model, plan, repair, settings)
    teacher = Teacher(job.model, student, settings)
    with (
        scratch_folder(job.scratch) as folder,
        stage(Stage.FINETUNE, recorder, meter, total=_total(settings, training, held_out)) as scope,
    ):
        # Both sets at once: half of them would be of no use.
        require_scratch(
            folder, (training.tokens.numel() + held_out.tokens.numel()) * teacher.bytes_a_position
        )
        room = Classroom(folder, job.keeping, scope)
        lessons, test = (
            teach(teacher, windows, name, room)
            for name, windows in (("training", training), ("held-out", held_out))
        )
        memory = _Kept(job.keeping, _question(settings, plan, repair, lessons, test))
        teller = _Teller(settings, recorder)
        run = Training(settings, student, lessons, test, memory, Heard(scope.advance, teller.look))
        with _sparing(student, settings, lessons):
            progress = run.run()
        _settle(scope, settings, training, held_out)
    teller.sum_up(progress)
    values = {slot.name: best for slot, best in zip(student.slots, progress.best, strict=True)}
    return Finetuned(student.repaired(values), _report(settings, student, progress, training, held_out))


def _total(settings: Finetune, training: Windows, held_out: Windows) -> int:
    """Tokens through the teacher, through the student back and forth, and at every look."""
    lessons, test = training.tokens.numel(), held_out.tokens.numel()
    return lessons + test + settings.epochs * lessons + settings.looks * test


def _settle(scope: StageScope, settings: Finetune, training: Windows, held_out: Windows) -> None:
    """What an early end leaves undone is behind us too."""
    left = _total(settings, training, held_out) - scope.done
    if left:
        scope.advance(left)


def _sparing(student: Student, settings: Finetune, lessons: TaughtFile) -> AbstractContextManager[None]:
    """Layers run twice instead of keeping what they need for the way back, if memory is short."""
    free = memory_free(str(student.device))
    tokens = settings.batch_size * lessons.windows.shape[1]
    needed = activation_bytes(student.model, student.depth, tokens)
    # The same bits either way, so this is nothing that a spec would have to say.
    return student.recomputing() if free is not None and needed > free // 2 else nullcontext()


def _question(
    settings: Finetune, plan: PruningPlan, repair: Repair, lessons: TaughtFile, test: TaughtFile
) -> dict[str, Any]:
    return {
        "stage": "finetune",
        "part": "training",
        # Where the text came from does not matter: its tokens do.
        "settings": settings.model_dump(mode="json", exclude={"dataset"}),
        "removed": list(plan.removed),
        "repair": repair_digest(repair),
        "tokens": tokens_digest(lessons.windows),
        "held_out_tokens": tokens_digest(test.windows),
    }


@dataclass(frozen=True)
class _Kept:
    """Progress in the stage cache."""

    keeping: Keeping
    question: dict[str, Any]

    def recall(self, read: Callable[[Entry], Progress]) -> Progress | None:
        found = self.keeping.recall(self.question, PROGRESS, read)
        if found is not None:
            self.keeping.say(f"{found.step} steps of the training were taken from an earlier run.")
        return found

    def keep(self, entry: Entry) -> None:
        self.keeping.keep(self.question, PROGRESS, entry)


@dataclass(frozen=True)
class _Teller:
    """Tells the user how training goes."""

    settings: Finetune
    recorder: Recorder

    def look(self, point: Point, is_best: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        loss = "" if point.loss is None else f"loss {point.loss:.4f}, "
        best = ", the best so far" if is_best and point.step else ""
        self._say(
            f"Training, step {point.step} of {self.settings.steps}: {loss}"
            f"KL on held-out text {point.held_out_kl:.4f}{best}."
        )

    def sum_up(self, progress: Progress) -> None:
        best = progress.best_point
        if progress.diverged is not None:
            self._say(f"Training ended: {progress.diverged} The best weights until then are kept.", "warning")
        elif progress.step < self.settings.steps:
            self._say(
                f"Training ended after {progress.step} steps: {self.settings.patience} looks were no better."
            )
        if not best.step:
            self._say("Training did not help: the repair stays as it was.", "warning")
        detail = {"before": progress.curve[0].held_out_kl, "step": best.step, "steps": progress.step}
        self.recorder.record(MetricMeasured("finetune_held_out_kl", best.held_out_kl, detail))

    def _say(self, message: str, level: str = "info") -> None:
        self.recorder.record(Logged(message, level))


def _report(
    settings: Finetune, student: Student, progress: Progress, training: Windows, held_out: Windows
) -> dict[str, Any]:
    best, first = progress.best_point, progress.curve[0]
    return {
        "trainable": settings.trainable,
        "tensors": {slot.name: list(slot.master.shape) for slot in student.slots},
        "parameters": sum(master.numel() for master in student.masters),
        "tokens": training.tokens.numel(),
        "tokens_seen": settings.windows_seen(progress.step) * training.tokens.shape[1],
        "held_out_tokens": held_out.tokens.numel(),
        "steps": progress.step,
        "steps_planned": settings.steps,
        "stopped_early": progress.step < settings.steps or progress.diverged is not None,
        "diverged": progress.diverged,
        "best_step": best.step,
        "seconds": round(progress.seconds, 1),
        "held_out_kl_before": first.held_out_kl,
        "held_out_kl": best.held_out_kl,
        "curve": [asdict(point) for point in progress.curve],
        "text": training.description,
    }
