"""From a plan to repairs: calibration text goes through the model once, and every cut is fitted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.activations import ActivationFile, require_scratch, scratch_folder
from ghosted_core.data import Windows, batches
from ghosted_core.model.capture import Observed, ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import Logged, Meter, Recorder, Stage, StageScope, stage
from ghosted_core.recovery import (
    FitReport,
    Outcome,
    RecoverySolver,
    RecoveryTrainer,
    StoredActivations,
    solver_for,
)
from ghosted_core.sequential import fit_sequentially
from ghosted_core.spec import Recovery
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.repairs import keep_repairs, question_of, recall_repairs
from ghosted_core.stage_cache.statistics import (
    Asked,
    keep_statistics,
    recall_statistics,
    say_what_is_known,
)
from ghosted_core.statistics import BoundaryStatistics, Feature, StatisticsRequest, token_weights
from ghosted_core.texts import Texts

# One token of a window of 128 has less than a hundredth where all change alike; see docs/agreement.md.
MOST_IN_FIRST_TOKENS = 0.5


@dataclass(frozen=True)
class Calibrated:
    """The model and text of a job, a folder for what does not fit into memory, and what is known."""

    model: PreTrainedModel
    texts: Texts
    scratch: Path
    keeping: Keeping = field(default_factory=Keeping.nothing)

    @property
    def stream(self) -> ResidualStream:
        """The model's residual stream."""
        return ResidualStream(self.model, family_of(self.model.config.model_type))

    @property
    def tokens(self) -> int:
        """Tokens to run, held-out ones included."""
        return self.texts.calibration.tokens.numel() + self.texts.held_out.tokens.numel()


def repair(
    recovery: Recovery, job: Calibrated, plan: PruningPlan, recorder: Recorder, meter: Meter
) -> list[Outcome]:
    """The repair of each boundary of `plan`, in order; none where none is asked for.

    One pass over the text serves all boundaries; where they are fitted one after another, less than
    two.

    Raises:
        NumericsError: the sums have no usable answer.
        DiskFullError: the scratch folder cannot hold the activations.
    """
    outcomes = _repair(recovery, job, plan, recorder, meter)
    # Least squares whose tokens count by their energy; the other repairs have no such weakness.
    if getattr(recovery, "weighting", None) == "uniform":
        for outcome in outcomes:
            _warn_of_first_tokens(outcome.report, recorder)
    return outcomes


def _warn_of_first_tokens(report: FitReport, recorder: Recorder) -> None:
    share, run = report.first_token_share, report.boundary
    if share is None or share <= MOST_IN_FIRST_TOKENS:
        return
    message = (
        f"{share:.0%} of what layers {run.start} to {run.stop - 1} change is in the first token of each"
        " window, a massive activation: the repair restores it at the cost of all other tokens. Keep the"
        " layer that writes it, by removing fewer layers or others, or try weighting 'inverse_norm'."
    )
    recorder.record(Logged(message, level="warning"))


def _repair(
    recovery: Recovery, job: Calibrated, plan: PruningPlan, recorder: Recorder, meter: Meter
) -> list[Outcome]:
    solver = solver_for(recovery)
    if solver is None:
        return []
    if isinstance(solver, RecoverySolver) and not (solver.sequential and len(plan.boundaries) > 1):
        return _solve(solver, job, plan, recorder, meter)
    question = question_of(recovery, plan, job.texts)
    known = recall_repairs(job.keeping, question, job.model.device)
    if known is not None:
        with stage(Stage.CALIBRATE, recorder, meter, total=job.tokens) as scope:
            scope.advance(job.tokens)
        return known
    if isinstance(solver, RecoveryTrainer):
        outcomes = _train(solver, job, plan, recorder, meter)
    else:
        outcomes = _fit_sequentially(solver, job, plan, recorder, meter)
    keep_repairs(job.keeping, question, outcomes)
    return outcomes


def _fit_sequentially(
    solver: RecoverySolver, job: Calibrated, plan: PruningPlan, recorder: Recorder, meter: Meter
) -> list[Outcome]:
    total = job.tokens * len(plan.boundaries)
    # Fitting and running alternate here: both count as calibration.
    with stage(Stage.CALIBRATE, recorder, meter, total=total) as scope:
        return fit_sequentially(solver, job.model, job.texts, plan, job.scratch, scope)


def _solve(
    solver: RecoverySolver, job: Calibrated, plan: PruningPlan, recorder: Recorder, meter: Meter
) -> list[Outcome]:
    with stage(Stage.CALIBRATE, recorder, meter, total=job.tokens) as scope:
        fit, held_out = _statistics(solver, job, plan, scope)
    with stage(Stage.SOLVE, recorder, meter, unit="boundaries", total=len(plan.boundaries)) as scope:
        outcomes = []
        for boundary in plan.boundaries:
            outcomes.append(solver.solve(boundary, fit[boundary], held_out[boundary]))
            scope.advance(1)
    return outcomes


Statistics = dict[Boundary, BoundaryStatistics]


def _statistics(
    solver: RecoverySolver, job: Calibrated, plan: PruningPlan, scope: StageScope
) -> tuple[Statistics, Statistics]:
    """The sums to fit on and those to test on, of every boundary; those of an earlier run are taken over."""
    asked = [Asked.by(solver, windows) for windows in (job.texts.calibration, job.texts.held_out)]
    known = [recall_statistics(job.keeping, plan.boundaries, one, job.model.device) for one in asked]
    say_what_is_known(job.keeping, min(len(one) for one in known), len(plan.boundaries))
    fit, held_out = (_complete(found, job, plan, one, scope) for found, one in zip(known, asked, strict=True))
    return fit, held_out


def _complete(
    known: Statistics, job: Calibrated, plan: PruningPlan, asked: Asked, scope: StageScope
) -> Statistics:
    missing = tuple(boundary for boundary in plan.boundaries if boundary not in known)
    if not missing:
        scope.advance(asked.windows.tokens.numel())
        return known
    found = gather_statistics(
        job.stream,
        replace(plan, boundaries=missing),
        asked.request,
        asked.weighting,
        scope.track(batches(asked.windows)),
    )
    keep_statistics(job.keeping, found, asked)
    return known | found


def gather_statistics(
    stream: ResidualStream,
    plan: PruningPlan,
    request: StatisticsRequest,
    weighting: str,
    windows: Iterator[Tensor],
) -> dict[Boundary, BoundaryStatistics]:
    """The sums of `request` at every boundary of `plan` from one pass over batches of `windows`.

    A request may be the union of several repairs' requests: `first.request | second.request`.

    Raises:
        NonFiniteError: an activation is infinite or not a number.
    """
    statistics = {boundary: BoundaryStatistics(request) for boundary in plan.boundaries}
    for seen in _observed(stream, plan, request.features, windows):
        for boundary, sums in statistics.items():
            features = _features_at(boundary, seen)
            sums.update(features, token_weights(weighting, features[Feature.ENTERING]))
    return statistics


def _observed(
    stream: ResidualStream, plan: PruningPlan, features: frozenset[Feature], windows: Iterator[Tensor]
) -> Iterator[Observed]:
    states = sorted({index for b in plan.boundaries for index in (b.start, b.stop)})
    layers = [b.start - 1 for b in plan.boundaries] if Feature.MLP in features else []
    for batch in windows:
        yield stream.observe(batch.to(stream.device), states, layers)


def _features_at(boundary: Boundary, seen: Observed) -> dict[Feature, Tensor]:
    features = {
        Feature.ENTERING: seen.states[boundary.start],
        Feature.LEAVING: seen.states[boundary.stop],
    }
    if boundary.start - 1 in seen.mlp:
        features[Feature.MLP] = seen.mlp[boundary.start - 1]
    return features


def _train(
    trainer: RecoveryTrainer, job: Calibrated, plan: PruningPlan, recorder: Recorder, meter: Meter
) -> list[Outcome]:
    width = job.model.config.get_text_config().hidden_size
    row_bytes = width * job.model.dtype.itemsize * len(trainer.features)
    with scratch_folder(job.scratch) as folder:
        require_scratch(folder, job.tokens * row_bytes * len(plan.boundaries))
        with stage(Stage.CALIBRATE, recorder, meter, total=job.tokens) as scope:
            fit = _keep(trainer, job, plan, job.texts.calibration, folder / "fit", scope)
            held_out = _keep(trainer, job, plan, job.texts.held_out, folder / "held-out", scope)
        steps = trainer.steps(job.texts.calibration.tokens.numel()) * len(plan.boundaries)
        with stage(Stage.SOLVE, recorder, meter, unit="steps", total=steps) as scope:
            return [trainer.train(b, fit[b], held_out[b], scope.advance) for b in plan.boundaries]


def _keep(
    trainer: RecoveryTrainer,
    job: Calibrated,
    plan: PruningPlan,
    windows: Windows,
    folder: Path,
    scope: StageScope,
) -> Mapping[Boundary, StoredActivations]:
    """The features of all tokens at every boundary, on disk, from one pass."""
    folder.mkdir()
    files = {
        (boundary, feature): ActivationFile(folder / f"{boundary.start}-{feature}")
        for boundary in plan.boundaries
        for feature in trainer.features
    }
    for seen in _observed(job.stream, plan, trainer.features, scope.track(batches(windows))):
        for boundary in plan.boundaries:
            found = _features_at(boundary, seen)
            for feature in trainer.features:
                files[boundary, feature].append(found[feature])
    return {
        boundary: StoredActivations(
            {feature: files[boundary, feature].rows() for feature in trainer.features}, job.model.device
        )
        for boundary in plan.boundaries
    }
