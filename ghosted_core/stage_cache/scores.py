"""What criteria look at, taken over from an earlier run.

What is kept is the evidence, not the choice: another criterion or another number of layers that looks
at the same starts from it too.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ghosted_core.criteria import Evidence, Findings, LossesWithout
from ghosted_core.recorder import StageScope
from ghosted_core.scoring import Gathering, Recall, Subject
from ghosted_core.stage_cache.entry import Entry
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import tokens_digest
from ghosted_core.statistics import LayerSimilarity

SCORES = "scores"
TAKEN = "The scores were taken from an earlier run."
# Losses are measured for hours: this much of it, at most, is lost in a crash.
SAVE_SECONDS = 60.0


def recalled(keeping: Keeping) -> Recall:
    """Evidence that is looked for in `keeping` first, and left there."""

    def recall(gathering: Gathering, subject: Subject, scope: StageScope) -> AbstractContextManager[Findings]:
        if subject.criterion.evidence is Evidence.LOSSES:
            return _losses(keeping, gathering, subject, scope)
        return _findings(keeping, gathering, subject, scope)

    return recall


@contextmanager
def _findings(
    keeping: Keeping, gathering: Gathering, subject: Subject, scope: StageScope
) -> Iterator[Findings]:
    question = _question(subject)
    found = keeping.recall(question, SCORES, lambda entry: _read(entry, subject))
    if found is None:
        found = gathering.gather(subject, scope)
        keeping.keep(question, SCORES, _entry(found))
    else:
        keeping.say(TAKEN)
        scope.advance(gathering.total(subject))
    yield found


@contextmanager
def _losses(
    keeping: Keeping, gathering: Gathering, subject: Subject, scope: StageScope
) -> Iterator[Findings]:
    question = _question(subject)
    memory = _Losses(
        keeping.recall(question, SCORES, _read_losses) or {},
        gathering.gather(subject, scope).seen_losses(),
        skip=lambda count: scope.advance(count * subject.tokens),
        save=lambda losses: keeping.keep(question, SCORES, _losses_entry(losses)),
    )
    yield Findings(losses_without=memory)
    memory.flush()
    if memory.recalled:
        keeping.say(TAKEN if not memory.measured else _partly(memory.recalled, memory.measured))


def known_losses(findings: Findings) -> Mapping[tuple[int, ...], float]:
    """The losses that a run has measured or taken over, by the layers left out."""
    measured = findings.seen_losses()
    return measured.known if isinstance(measured, _Losses) else {}


def _partly(recalled_count: int, measured: int) -> str:
    total = recalled_count + measured
    return f"{recalled_count} of {total} losses behind the scores were taken from an earlier run."


Losses = dict[tuple[int, ...], float]


@dataclass
class _Losses:
    """Measures what is not known, and saves from time to time."""

    known: Losses
    measure: LossesWithout
    skip: Callable[[int], None]
    save: Callable[[Losses], None]
    clock: Callable[[], float] = time.monotonic
    recalled: int = 0
    measured: int = 0
    _saved: float = field(init=False)
    _unsaved: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._saved = self.clock()

    def __call__(self, removed: Collection[int], candidates: Collection[int]) -> dict[int, float]:
        """The mean negative log-likelihood without `removed` and each of `candidates`, in their order."""
        sets = {layer: tuple(sorted({*removed, layer})) for layer in candidates}
        unknown = [layer for layer, layers in sets.items() if layers not in self.known]
        if len(unknown) < len(sets):
            self.skip(len(sets) - len(unknown))
        if unknown:
            self._learn(sets, self.measure(removed, unknown))
        self.recalled += len(sets) - len(unknown)
        return {layer: self.known[layers] for layer, layers in sets.items()}

    def _learn(self, sets: Mapping[int, tuple[int, ...]], found: Mapping[int, float]) -> None:
        self.known |= {sets[layer]: loss for layer, loss in found.items()}
        self.measured += len(found)
        self._unsaved = True
        if self.clock() >= self._saved + SAVE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Everything known is kept."""
        if self._unsaved:
            self.save(self.known)
        self._unsaved, self._saved = False, self.clock()


def _question(subject: Subject) -> dict[str, Any]:
    evidence = subject.criterion.evidence
    tokens = None if evidence is Evidence.WEIGHTS else tokens_digest(subject.windows.tokens)
    return {"stage": "score", "evidence": evidence.value, "tokens": tokens}


def _entry(found: Findings) -> Entry:
    if found.similarity is not None:
        return Entry(found.similarity.to_tensors())
    return Entry(facts=json.dumps(found.seen_importance()))


def _read(entry: Entry, subject: Subject) -> Findings:
    if subject.criterion.evidence is Evidence.SIMILARITY:
        return Findings(similarity=_read_similarity(entry, subject.layer_count))
    importance = tuple(float(value) for value in json.loads(entry.facts))
    if len(importance) != subject.layer_count:
        raise ValueError("importance of another number of layers")
    return Findings(importance=importance)


def _read_similarity(entry: Entry, layer_count: int) -> LayerSimilarity:
    found = LayerSimilarity.from_tensors(entry.tensors)
    for sums in found.sums():
        if sums.shape != (layer_count + 1, layer_count + 1) or sums.dtype != torch.float64:
            raise ValueError("similarities of another number of layers")
    return found


def _losses_entry(losses: Losses) -> Entry:
    return Entry(facts=json.dumps([[list(layers), loss] for layers, loss in losses.items()]))


def _read_losses(entry: Entry) -> Losses:
    return {tuple(int(layer) for layer in layers): float(loss) for layers, loss in json.loads(entry.facts)}
