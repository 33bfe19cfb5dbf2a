"""Whole repairs, taken over from an earlier run, where there are no sums that could be.

That is so where boundaries are fitted one after another, and where a repair is trained on activations.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recovery import FitReport, MlpMap, Outcome, RecoveryOperator, StreamScale
from ghosted_core.spec import Recovery
from ghosted_core.stage_cache.entry import Entry
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import tokens_digest
from ghosted_core.texts import Texts

REPAIRS = "repairs"


def question_of(recovery: Recovery, plan: PruningPlan, texts: Texts) -> dict[str, Any]:
    """What determines the repairs, as JSON values."""
    return {
        "stage": "solve",
        "recovery": recovery.model_dump(mode="json"),
        "boundaries": [[boundary.start, boundary.stop] for boundary in plan.boundaries],
        "tokens": tokens_digest(texts.calibration.tokens),
        "held_out_tokens": tokens_digest(texts.held_out.tokens),
    }


def recall_repairs(keeping: Keeping, question: dict[str, Any], device: torch.device) -> list[Outcome] | None:
    """The repairs on `device`, and the user is told; None if they are not known."""

    def read(entry: Entry) -> list[Outcome]:
        return [_read(fact, index, entry, device) for index, fact in enumerate(json.loads(entry.facts))]

    found = keeping.recall(question, REPAIRS, read)
    if found is not None:
        keeping.say("The repairs were taken from an earlier run.")
    return found


def keep_repairs(keeping: Keeping, question: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Later runs find these repairs."""
    facts, tensors = [], {}
    for index, outcome in enumerate(outcomes):
        fact: dict[str, Any] = {"kind": type(outcome).__name__, "report": asdict(outcome.report)}
        if isinstance(outcome, StreamScale):
            fact["factor"] = outcome.factor
        else:
            tensors[str(index)] = (
                outcome.correction if isinstance(outcome, RecoveryOperator) else outcome.matrix
            )
        facts.append(fact)
    keeping.keep(question, REPAIRS, Entry(tensors, json.dumps(facts)))


def _read(fact: dict[str, Any], index: int, entry: Entry, device: torch.device) -> Outcome:
    report = FitReport(**{**fact["report"], "boundary": Boundary(**fact["report"]["boundary"])})
    if fact["kind"] == StreamScale.__name__:
        return StreamScale(report.boundary, float(fact["factor"]), report)
    matrix = entry.tensors[str(index)].to(device)
    if fact["kind"] == MlpMap.__name__:
        return MlpMap(report.boundary, matrix, report)
    return RecoveryOperator(report.boundary, matrix, report)
