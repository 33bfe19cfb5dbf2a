"""Fitting cuts one after another, each on the stream that the repaired cuts before it leave."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.activations import ActivationFile, require_scratch, scratch_folder
from ghosted_core.data import Windows, batches
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.model.surgery import pruned_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import StageScope
from ghosted_core.recovery import Outcome, RecoveryOperator, RecoverySolver
from ghosted_core.statistics import BoundaryStatistics, Feature, token_weights
from ghosted_core.texts import Texts

STREAMS = 2  # states kept at a time: the unpruned stream and the patched one
GENERATIONS = 2  # of each, those that are read and those that are written


@dataclass(frozen=True)
class _Depth:
    """Both streams of all windows where the last cut ended: the unpruned one, and what entered the cut.

    The patched stream goes on from x + x M, M being `correction`, for x in `entering`.
    """

    layer: int
    unpruned: ActivationFile
    entering: ActivationFile
    correction: Tensor

    def states(self, rows: slice, shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """(unpruned, patched) states of some windows."""
        unpruned, entering = (file.rows()[rows].to(device) for file in (self.unpruned, self.entering))
        # The same kernel as in the checkpoint's operator, so that the rounding is the same.
        patched = torch.addmm(entering, entering, self.correction.to(entering))
        return unpruned.view(*shape, -1), patched.view(*shape, -1)


class _Walk:
    """The way of one set of windows through the layers, a boundary at a time, through files in `folder`."""

    def __init__(self, model: PreTrainedModel, windows: Windows, folder: Path) -> None:
        folder.mkdir()
        self._model, self._windows, self._folder = model, windows, folder
        self._reached: _Depth | None = None
        self._written: dict[Boundary, tuple[ActivationFile, ActivationFile]] = {}

    def gather(self, solver: RecoverySolver, boundary: Boundary, scope: StageScope) -> BoundaryStatistics:
        """The sums over the patched stream entering `boundary` and the unpruned one leaving it."""
        sums = BoundaryStatistics(solver.request)
        files = [
            ActivationFile(self._folder / f"{boundary.start}-{name}") for name in ("unpruned", "entering")
        ]
        for entering, leaving in self._advance(boundary, scope):
            weights = token_weights(solver.weighting, entering)
            sums.update({Feature.ENTERING: entering, Feature.LEAVING: leaving}, weights)
            files[0].append(leaving)
            files[1].append(entering)
        self._written[boundary] = (files[0], files[1])
        return sums

    def repair(self, boundary: Boundary, correction: Tensor) -> None:
        """The patched stream goes on from `boundary` with x + x M."""
        if self._reached is not None:
            self._reached.unpruned.remove()
            self._reached.entering.remove()
        self._reached = _Depth(boundary.stop, *self._written.pop(boundary), correction)

    def _advance(self, boundary: Boundary, scope: StageScope) -> Iterator[tuple[Tensor, Tensor]]:
        if self._reached is None:
            return self._from_tokens(boundary, scope)
        return self._from_depth(self._reached, boundary, scope)

    def _from_tokens(self, boundary: Boundary, scope: StageScope) -> Iterator[tuple[Tensor, Tensor]]:
        # Before the first cut both streams are one.
        stream = ResidualStream(self._model, family_of(self._model.config.model_type))
        for batch in scope.track(batches(self._windows)):
            found = stream.read(batch.to(stream.device), [boundary.start, boundary.stop])
            yield found[boundary.start], found[boundary.stop]

    def _from_depth(
        self, depth: _Depth, boundary: Boundary, scope: StageScope
    ) -> Iterator[tuple[Tensor, Tensor]]:
        kept = layer_segment(self._model, depth.layer, boundary.start)
        whole = layer_segment(self._model, depth.layer, boundary.stop)
        first = 0
        for batch in scope.track(batches(self._windows)):
            rows = slice(first, first + batch.numel())
            tokens = batch.to(kept.device)
            unpruned, patched = depth.states(rows, tuple(batch.shape), kept.device)
            yield kept.resume(tokens, patched), whole.resume(tokens, unpruned)
            first = rows.stop


def layer_segment(model: PreTrainedModel, start: int, stop: int) -> ResidualStream:
    """The layers start .. stop - 1 of `model` alone, sharing its weights."""
    family = family_of(model.config.model_type)
    count = model.config.get_text_config().num_hidden_layers
    runs = (Boundary(0, start), Boundary(stop, count))
    plan = PruningPlan(layer_count=count, boundaries=tuple(run for run in runs if run.size))
    return ResidualStream(pruned_model(model, plan), family)


def fit_sequentially(
    solver: RecoverySolver,
    model: PreTrainedModel,
    texts: Texts,
    plan: PruningPlan,
    scratch: Path,
    scope: StageScope,
) -> list[Outcome]:
    """The operators of all boundaries; `scope` advances by all tokens a boundary.

    The first is fitted on the unpruned stream. From there on both streams lie on disk where the last
    cut ended and go on together: each layer runs at most once on either.

    Raises:
        DiskFullError: the folder `scratch` cannot hold both streams.
    """
    tokens = texts.calibration.tokens.numel() + texts.held_out.tokens.numel()
    row_bytes = model.config.get_text_config().hidden_size * model.dtype.itemsize
    outcomes: list[Outcome] = []
    with scratch_folder(scratch) as folder:
        require_scratch(folder, tokens * row_bytes * STREAMS * GENERATIONS)
        seen = _Walk(model, texts.calibration, folder / "fit")
        unseen = _Walk(model, texts.held_out, folder / "held-out")
        for boundary in plan.boundaries:
            fit, held_out = (walk.gather(solver, boundary, scope) for walk in (seen, unseen))
            outcome = solver.solve(boundary, fit, held_out)
            if not isinstance(outcome, RecoveryOperator):
                raise TypeError("only operators can be fitted one after another")
            # As the model will hold it, so that the next fit sees what the model will see.
            correction = outcome.correction.to(model.dtype)
            for walk in (seen, unseen):
                walk.repair(boundary, correction)
            outcomes.append(outcome)
    return outcomes
