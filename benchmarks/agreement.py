"""All repairs on identical cuts and data, against the order that their papers report.

    python benchmarks/agreement.py --data DIR [--cache DIR]

DIR holds wikitext2/wikitext2_raw_test.jsonl and c4/c4_en_{train_first1041,validation_first1025}.jsonl.
Calibrated on 32 x 2048 tokens of C4 train; perplexity over 16 windows of 2048 of WikiText-2 raw test
and of C4 validation. What is finished is in the cache, so a run that was stopped goes on where it
was. At the end the table in docs/agreement.md is written anew.
"""

import argparse
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import torch
import transformers
from notebook import BEGIN, END, Notebook, put_between, timed
from transformers import PreTrainedModel

from ghosted_cli.request import cache_folder, strategy_choice
from ghosted_core.activations import ActivationFile, scratch_folder
from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.source import resolve
from ghosted_core.corpora import CORPORA, corpus_windows
from ghosted_core.criteria import Evidence, Findings, criterion_for
from ghosted_core.data import Windows, batches
from ghosted_core.evaluate.perplexity import perplexities
from ghosted_core.model.surgery import repaired_model
from ghosted_core.pipeline import Loaded
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import NullRecorder, Stage, StageScope
from ghosted_core.recovery import Outcome, RecoveryOperator, RecoveryTrainer, StoredActivations, solver_for
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.scoring import GATHERINGS, Subject
from ghosted_core.spec import JobSpec
from ghosted_core.statistics import BoundaryStatistics, Feature
from ghosted_core.texts import read_texts

MODEL = "smollm2-135m-instruct"
LENGTH = 2048
WINDOWS = 16
REPAIRS = (
    "none",
    "prune_and_comp",
    "linear_patch_diag",
    "linear_patch_rotate",
    "replace_me",
    "replace_me_cosine",
    "ghosted",
)
GRID = (
    ("streamline", 7),
    ("shortgpt", 7),
    ("taylor", 7),
    ("sleb:sequences=4", 7),
    ("streamline", 3),
    ("streamline", 11),
    ("shortgpt", 3),
    ("shortgpt", 11),
)
FILES = {
    "wikitext2": "wikitext2/wikitext2_raw_test.jsonl",
    "c4": "c4/c4_en_validation_first1025.jsonl",
}
CALIBRATION = "c4/c4_en_train_first1041.jsonl"
REPORT = Path(__file__).parents[1] / "docs" / "agreement.md"


def bfloat16_products() -> AbstractContextManager[Any]:
    """Losses are measured with products of bfloat16 and a stream of float32, in half the time."""
    return torch.autocast("cpu", torch.bfloat16)


class Bench:
    """The model, the text, and what is known already."""

    def __init__(self, data: Path, cache: Path) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.cache = cache
        self.loaded = load(data, cache)
        model = self.loaded.model
        self.windows = {
            name: corpus_windows(
                CORPORA[name],
                data / file,
                self.loaded.tokenizer,
                length=LENGTH,
                count=WINDOWS,
                vocab_size=model.config.vocab_size,
            )
            for name, file in FILES.items()
        }
        self.notebook = Notebook(cache / f"agreement-{self._digest()}.json")
        self._similarity: Findings | None = None
        self._fitted: dict[tuple[str, Boundary], Outcome] = {}

    def _digest(self) -> str:
        """Of all that every figure depends on."""
        versions = [torch.__version__, transformers.__version__]
        texts = [w.description for w in (*self.windows.values(), self.loaded.texts.calibration)]
        told = json.dumps([MODEL, self.loaded.source.fingerprint, versions, texts], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def removed(self, strategy: str, count: int) -> tuple[int, ...]:
        """The layers that the criterion chooses."""
        key = f"layers {strategy} {count}"
        if key not in self.notebook:
            with timed(key) as took:
                layers = self._choose(strategy, count)
            self.notebook.put(key, layers, took)
        return tuple(self.notebook[key])

    def _choose(self, strategy: str, count: int) -> list[int]:
        form = job(strategy_choice(strategy, None), count).strategy
        criterion = criterion_for(form)
        looked_at = self.loaded.texts.calibration.head(
            getattr(form, "sequences", None), getattr(form, "sequence_length", None)
        )
        subject = Subject(self.loaded.model, looked_at, criterion, count)
        precision = bfloat16_products if criterion.evidence is Evidence.LOSSES else nullcontext
        with precision():
            scores = criterion.choose(count, subject.layer_count, self._findings(subject))
        return list(scores.removed)

    def _findings(self, subject: Subject) -> Findings:
        evidence = subject.criterion.evidence
        gather, scope = GATHERINGS[evidence].gather, StageScope(Stage.SCORE, NullRecorder())
        if evidence is not Evidence.SIMILARITY:
            return gather(subject, scope)
        # One pass serves every such criterion and every number of layers.
        self._similarity = self._similarity or gather(subject, scope)
        return self._similarity

    def dense(self) -> dict[str, float]:
        """Perplexities of the unpruned model."""
        return self._measure("dense", lambda: {"dense": self.loaded.model})["dense"]

    def rows(self, removed: tuple[int, ...]) -> dict[str, dict[str, float]]:
        """Perplexities by repair and corpus."""
        return self._measure(f"{list(removed)}", lambda: self._variants(self._plan(removed)))

    def _measure(
        self, what: str, make: Callable[[], Mapping[str, PreTrainedModel]]
    ) -> dict[str, dict[str, float]]:
        names = ("dense",) if what == "dense" else REPAIRS
        made: Mapping[str, PreTrainedModel] = {}
        for corpus, windows in self.windows.items():
            if all(self._key(what, name, corpus) in self.notebook for name in names):
                continue
            made = made or make()
            with timed(f"{what} on {corpus}") as took, bfloat16_products():
                found = perplexities(self.loaded.model, made, batches(windows), lambda _: None)
            for name, figure in found.items():
                value = {"perplexity": figure.value, "standard_error": figure.standard_error}
                self.notebook.put(self._key(what, name, corpus), value, took.shared(len(found)))
        return {
            name: {
                corpus: self.notebook[self._key(what, name, corpus)]["perplexity"] for corpus in self.windows
            }
            for name in names
        }

    @staticmethod
    def _key(what: str, name: str, corpus: str) -> str:
        return f"{what} {name} {corpus}"

    def _variants(self, plan: PruningPlan) -> dict[str, PreTrainedModel]:
        outcomes = {
            name: [self._fitted[name, b] for b in plan.boundaries] for name in REPAIRS if name != "none"
        }
        return {name: self._built(plan, outcomes.get(name, [])) for name in REPAIRS}

    def _built(self, plan: PruningPlan, outcomes: list[Outcome]) -> PreTrainedModel:
        corrections = {o.boundary: o.correction for o in outcomes if isinstance(o, RecoveryOperator)}
        folded = folded_tensors(self.loaded.model, self.loaded.family, plan, outcomes)
        return repaired_model(self.loaded.model, plan, corrections, folded)

    def fit(self, grid: Iterable[tuple[str, int]]) -> None:
        """Every repair of every cut of `grid` that has rows to be measured: one look at the text for all."""
        plans = [self._plan(self.removed(strategy, count)) for strategy, count in grid]
        wanted = {b for plan in plans if not self._is_measured(plan) for b in plan.boundaries}
        boundaries = sorted(
            wanted - {boundary for _, boundary in self._fitted}, key=lambda b: (b.start, b.stop)
        )
        if not boundaries:
            return
        with scratch_folder(self.cache) as folder:
            with timed(f"calibration of {len(boundaries)} boundaries") as took:
                texts = self.loaded.texts
                fit = self._observe(boundaries, texts.calibration, folder / "fit")
                held_out = self._observe(boundaries, texts.held_out, folder / "held-out")
            self.notebook.put(f"calibration {boundaries}", len(boundaries), took)
            for name, boundary in itertools.product(FORMS, boundaries):
                outcome = self._repaired(name, boundary, fit[boundary], held_out[boundary])
                self._fitted[name, boundary] = outcome

    def _is_measured(self, plan: PruningPlan) -> bool:
        keys = itertools.product([f"{list(plan.removed)}"], REPAIRS, FILES)
        return all(self._key(*key) in self.notebook for key in keys)

    def _plan(self, removed: tuple[int, ...]) -> PruningPlan:
        return PruningPlan.from_removed(removed, layer_count=self.loaded.stream.layer_count)

    def _observe(self, boundaries: list[Boundary], windows: Windows, folder: Path) -> dict[Boundary, "Seen"]:
        """Sums and stored activations at each boundary."""
        folder.mkdir()
        seen = {b: Seen(folder / f"{b.start}-{b.stop}") for b in boundaries}
        states = sorted({index for b in boundaries for index in (b.start, b.stop)})
        layers = sorted({b.start - 1 for b in boundaries})
        for batch in batches(windows):
            found = self.loaded.stream.observe(batch, states, layers)
            for boundary, kept in seen.items():
                kept.add(
                    {
                        Feature.ENTERING: found.states[boundary.start],
                        Feature.LEAVING: found.states[boundary.stop],
                        Feature.MLP: found.mlp[boundary.start - 1],
                    }
                )
        return seen

    def _repaired(self, name: str, boundary: Boundary, fit: "Seen", held_out: "Seen") -> Outcome:
        solver = FORMS[name]
        with timed(f"{name} at {boundary}") as took:
            if isinstance(solver, RecoveryTrainer):
                outcome: Outcome = solver.train(boundary, fit.stored(), held_out.stored(), lambda _: None)
            else:
                outcome = solver.solve(boundary, fit.sums, held_out.sums)
        report = outcome.report
        residuals = [report.relative_residual, report.held_out_relative_residual]
        self.notebook.put(f"residuals {name} {boundary.start}-{boundary.stop}", residuals, took)
        return outcome


class Seen:
    """What is kept of a boundary: sums for the repairs that need no more, and the activations."""

    def __init__(self, path: Path) -> None:
        solvers = [s for s in FORMS.values() if not isinstance(s, RecoveryTrainer)]
        self.sums = BoundaryStatistics(reduce(or_, (solver.request for solver in solvers)))
        self._files = {f: ActivationFile(path.with_name(f"{path.name}-{f}")) for f in Feature}

    def add(self, features: dict[Feature, torch.Tensor]) -> None:
        """Take in a batch, features of shape (windows, tokens, width)."""
        self.sums.update(features, None)
        for name, values in features.items():
            self._files[name].append(values)

    def stored(self) -> StoredActivations:
        """All activations so far."""
        return StoredActivations({f: file.rows() for f, file in self._files.items()}, torch.device("cpu"))


def job(strategy: Any, count: int, recovery: str = "none", **more: Any) -> JobSpec:
    """A spec of the benchmark's model."""
    fields = {"model": MODEL, "strategy": strategy, "layers": count, "recovery": recovery}
    return JobSpec.model_validate({**fields, "evaluation": None, **more})


FORMS = {name: solver_for(job("streamline", 1, name).recovery) for name in REPAIRS if name != "none"}


def load(data: Path, cache: Path) -> Loaded:
    """The model, and the windows that calibrate."""
    dataset = {"kind": "local", "path": str(data / CALIBRATION)}
    calibration = {"dataset": dataset, "sequences": 32, "sequence_length": LENGTH, "held_out_sequences": 2}
    spec = job("streamline", 7, calibration=calibration)
    common = {"catalog": builtin_catalog(), "cache": cache, "log": print}
    source = resolve(spec.model, hub_token=None, **common)
    model = load_model(source, dtype="auto", device="cpu")
    tokenizer = load_tokenizer(source)
    texts = read_texts(spec, tokenizer, vocab_size=model.config.vocab_size, **common)
    return Loaded(source, model, tokenizer, texts)


def table(bench: Bench) -> str:
    """Every row, measured now or before."""
    dense = bench.dense()
    # What is chosen by many small evaluations comes last: the other rows need not wait for it.
    for grid in ([g for g in GRID if "sleb" not in g[0]], GRID):
        bench.fit(grid)
        for strategy, count in grid:
            bench.rows(bench.removed(strategy, count))
    lines = [
        "| layers chosen by | n | removed | repair | WikiText-2 | C4 | damage left, C4 |",
        "|---|---|---|---|---|---|---|",
        f"| - | 0 | - | dense | {dense['wikitext2']:.2f} | {dense['c4']:.2f} | |",
    ]
    for strategy, count in GRID:
        removed = bench.removed(strategy, count)
        rows = bench.rows(removed)
        for name in REPAIRS:
            found, pruned = rows[name], rows["none"]
            left = (found["c4"] - dense["c4"]) / (pruned["c4"] - dense["c4"])
            lines.append(
                f"| {strategy} | {count} | {spans(removed)} | {name} | {found['wikitext2']:.2f} | "
                f"{found['c4']:.2f} | {left:.2f} |"
            )
    return "\n".join(lines)


def spans(removed: tuple[int, ...]) -> str:
    """5, 7-9."""
    boundaries = PruningPlan.from_removed(removed, layer_count=removed[-1] + 2).boundaries
    return ", ".join(f"{b.start}-{b.stop - 1}" if b.stop - b.start > 1 else f"{b.start}" for b in boundaries)


def main() -> None:
    """Measure what is missing, then write the table between its marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=None)
    arguments = parser.parse_args()
    bench = Bench(arguments.data, cache_folder(arguments.cache))
    text = table(bench)
    took = bench.notebook.total()
    spent = f"All rows together: {took.wall / 60:.0f} minutes on the clock, {took.cpu / 60:.0f} of CPU time"
    text += f"\n\n{spent}, {torch.get_num_threads()} threads."
    print(text)
    put_between(REPORT, text, f"# Agreement with the field\n\n{BEGIN}\n{END}\n")


if __name__ == "__main__":
    main()
