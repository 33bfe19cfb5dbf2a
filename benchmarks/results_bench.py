"""The models of `results.py`: what is cut, how it is repaired, all of it kept on the disk."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any

import torch
import transformers
from notebook import Notebook, timed
from results_setting import (
    C4,
    CALIBRATION,
    CORPORA,
    DENSE,
    FIRST_PAGE,
    MODEL,
    PAGES,
    UNIFORM,
    WIKITEXT,
    Setting,
    Variant,
)
from transformers import PreTrainedModel

from ghosted_core.calibration import gather_statistics
from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.patched import load_patched
from ghosted_core.checkpoint.source import resolve
from ghosted_core.corpora import CORPORA as FORMS, corpus_windows
from ghosted_core.criteria import criterion_for
from ghosted_core.data import Windows, batches
from ghosted_core.evaluate.task_subjects import read_repair, save_repair
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import Event, Logged, NullRecorder, Stage, StageScope
from ghosted_core.recovery import Outcome, RecoveryOperator, RecoverySolver, solver_for
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.scoring import GATHERINGS, Subject
from ghosted_core.spec import JobSpec
from ghosted_core.stage_cache import FolderStageCache
from ghosted_core.statistics import BoundaryStatistics
from ghosted_core.texts import Texts, read_texts

CAN_TRAIN = "finetune" in JobSpec.model_fields


class Printer:
    """What a job says, on the terminal."""

    def record(self, event: Event) -> None:
        """Print a sentence."""
        if isinstance(event, Logged):
            print(f"  {event.message}", flush=True)


class Bench:
    """The model, its texts, its repairs; what is finished lies in `folder` and is not worked out again."""

    def __init__(self, data: Path, cache: Path, setting: Setting) -> None:
        self.data, self.cache, self.setting = data, cache, setting
        # Penn Treebank may not be redistributed: not everybody has it.
        self.files = {name: file for name, file in CORPORA.items() if (data / file).exists()}
        self.source = resolve(
            self.spec().model, catalog=builtin_catalog(), cache=cache, hub_token=None, log=print
        )
        self.tokenizer = load_tokenizer(self.source)
        self.dense = load_model(self.source, dtype="auto", device="cpu")
        self.folder = cache / f"results-{self._digest()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.notebook = Notebook(self.folder / "figures.json")
        self.variants = setting.variants(finetune=CAN_TRAIN)

    def spec(self, recovery: str | dict[str, str] = "none", text: str = C4, **more: Any) -> JobSpec:
        """A job of the benchmark: its text, and the most sequences of it that any row wants."""
        sequences = max(self.setting.sweep) if text == C4 else self.setting.fitted
        calibration = {
            "dataset": self._dataset(text),
            "sequences": sequences,
            "sequence_length": self.setting.length,
            "held_out_sequences": self.setting.held_out,
        }
        fields = {"model": MODEL, "layers": 1, "recovery": recovery, "calibration": calibration}
        return JobSpec.model_validate({**fields, "evaluation": None, **more})

    def _dataset(self, text: str) -> Any:
        name = CALIBRATION[text]
        if text == WIKITEXT:
            return {"kind": "local", "path": str(self._later_articles())}
        return {"kind": "local", "path": str(self.data / name)} if text == C4 else name

    def _later_articles(self) -> Path:
        """WikiText-2's articles that perplexity is not measured on, as a file of texts."""
        path = self.cache / f"wikitext2-articles-from-{FIRST_PAGE}.jsonl"
        rows = (self.data / PAGES).read_text().splitlines()[FIRST_PAGE:]
        path.write_text("".join(json.dumps({"text": json.loads(row)["page"]}) + "\n" for row in rows))
        return path

    def _digest(self) -> str:
        """Of all that every figure depends on; on what only some depend is in their keys."""
        setting = self.setting
        sizes = [setting.length, setting.fitted, setting.held_out, setting.sweep, setting.counts]
        files = [*self.files.values(), str(CALIBRATION[C4]), PAGES]
        bytes_of = {name: hashlib.sha256((self.data / name).read_bytes()).hexdigest() for name in files}
        versions = [torch.__version__, transformers.__version__]
        told = json.dumps([MODEL, self.source.fingerprint, versions, sizes, bytes_of], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    @cached_property
    def corpora(self) -> dict[str, Windows]:
        """What perplexity is measured on."""
        return {
            name: corpus_windows(
                FORMS[name],
                self.data / file,
                self.tokenizer,
                length=self.setting.length,
                count=self.setting.windows,
                vocab_size=self.dense.config.vocab_size,
            )
            for name, file in self.files.items()
        }

    def texts(self, text: str) -> Texts:
        """The windows that calibrate, and those that test the fit."""
        return read_texts(
            self.spec(text=text),
            self.tokenizer,
            vocab_size=self.dense.config.vocab_size,
            catalog=builtin_catalog(),
            cache=self.cache,
            log=print,
        )

    def choose(self) -> None:
        """The layers to remove of every count are in the notebook, from one look."""
        looked_at = self.texts(C4).calibration.head(self.setting.fitted, None)
        criterion = criterion_for(self.spec().strategy)
        subject = Subject(self.dense, looked_at, criterion, max(self.setting.counts))
        gather = GATHERINGS[criterion.evidence].gather
        with timed("layers") as took:
            findings = gather(subject, StageScope(Stage.SCORE, NullRecorder()))
            chosen = {
                count: criterion.choose(count, subject.layer_count, findings).removed
                for count in self.setting.counts
            }
        self.notebook.put("layers", {str(count): list(removed) for count, removed in chosen.items()}, took)

    def plan(self, variant: Variant) -> PruningPlan:
        """The cut."""
        removed = self.notebook["layers"][str(variant.count)]
        return PruningPlan.from_removed(removed, layer_count=self.dense.config.num_hidden_layers)

    def boundary(self, variant: Variant) -> Boundary:
        """The one boundary of the cut: the criterion removes one run."""
        (boundary,) = self.plan(variant).boundaries
        return boundary

    def path(self, variant: Variant) -> Path:
        """Where its repair lies."""
        return self.folder / f"{variant.name}.safetensors"

    def wanted(self, text: str) -> list[Variant]:
        """What is still to be fitted on `text`."""
        fitted = [v for v in self.variants if v.is_fitted and not v.trained and v.text == text]
        return [v for v in fitted if not self.path(v).exists()]

    def fit(self, text: str) -> None:
        """All repairs on `text` are on the disk, from one look at it for each weighting of tokens."""
        wanted = self.wanted(text)
        for weighting in sorted({v.weighting for v in wanted}):
            self._fit(text, weighting, [v for v in wanted if v.weighting == weighting])

    def _fit(self, text: str, weighting: str, wanted: list[Variant]) -> None:
        boundaries = tuple(sorted({self.boundary(v) for v in wanted}))
        solvers = {v: self._solver(v) for v in wanted}
        request = reduce(or_, (solver.request for solver in solvers.values()))
        plan = PruningPlan(self.dense.config.num_hidden_layers, boundaries)
        stream = ResidualStream(self.dense, family_of(self.dense.config.model_type))
        texts = self.texts(text)
        held_out = gather_statistics(stream, plan, request, weighting, batches(texts.held_out))
        seen = {boundary: BoundaryStatistics(request) for boundary in boundaries}
        start = 0
        for mark in sorted({v.sequences for v in wanted}):
            with timed(f"{text}, {mark} sequences") as took:
                more = Windows(texts.calibration.tokens[start:mark], {})
                found = gather_statistics(stream, plan, request, weighting, batches(more))
                seen = {boundary: sums.merge(found[boundary]) for boundary, sums in seen.items()}
            start = mark
            for variant in [v for v in wanted if v.sequences == mark]:
                at = self.boundary(variant)
                with timed(f"  {variant.name}"):
                    outcome = solvers[variant].solve(at, seen[at], held_out[at])
                self._keep(variant, outcome)
                report = outcome.report
                residuals = [report.relative_residual, report.held_out_relative_residual]
                self.notebook.put(f"residuals {variant.name}", residuals, took)

    def _solver(self, variant: Variant) -> RecoverySolver:
        weighting = {} if variant.weighting == UNIFORM else {"weighting": variant.weighting}
        solver = solver_for(self.spec({"name": variant.repair, **weighting}).recovery)
        if not isinstance(solver, RecoverySolver) or solver.weighting != variant.weighting:
            raise TypeError(f"'{variant.name}' cannot be fitted with the others.")
        return solver

    def _keep(self, variant: Variant, outcome: Outcome) -> None:
        corrections = {outcome.boundary: outcome.correction} if isinstance(outcome, RecoveryOperator) else {}
        family = family_of(self.dense.config.model_type)
        replaced = folded_tensors(self.dense, family, self.plan(variant), [outcome])
        self._save(variant, corrections, replaced)

    def _save(
        self,
        variant: Variant,
        corrections: Mapping[Boundary, torch.Tensor],
        replaced: Mapping[str, torch.Tensor],
    ) -> None:
        beside = self.folder / f".{variant.name}.new"
        save_repair(beside, corrections, replaced)
        beside.replace(self.path(variant))

    def train(self, variant: Variant) -> None:
        """The trained operator is on the disk, made by a job as any user's; its steps outlive a kill."""
        out, plan = self.folder / "finetuned", self.plan(variant)
        calibration = self.spec().calibration.model_copy(update={"sequences": variant.sequences})
        spec = self.spec(
            variant.repair,
            layers=None,
            strategy={"name": "explicit", "indices": list(plan.removed)},
            calibration=calibration.model_dump(),
            finetune=self.setting.finetune or True,
        )
        shutil.rmtree(out, ignore_errors=True)
        options = RunOptions(out=out, cache=self.cache, stages=FolderStageCache(self.folder / "stages"))
        with timed(variant.name) as took:
            manifest = compress(spec, options, Printer()).manifest
        model = load_patched(out)
        operators = [model.get_submodule(path).ghosted_operator for path in manifest.operators]
        self._save(variant, {self.boundary(variant): operators[0].correction}, {})
        self.notebook.put("training", manifest.metrics, took)
        shutil.rmtree(out)

    def model(self, variant: Variant) -> PreTrainedModel:
        """The model; all share their weights."""
        if variant.name == DENSE:
            return self.dense
        if not variant.is_fitted:
            return pruned_model(self.dense, self.plan(variant))
        return repaired_model(self.dense, self.plan(variant), *read_repair(self.path(variant)))
