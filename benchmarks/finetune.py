"""What light distillation after the repair buys, and how its settings compare at equal cost.

    python benchmarks/finetune.py --data DIR [--cache DIR] [--only NAME ...] [--dtype float32]

DIR holds c4/c4_en_{train_first1041,validation_first1025}.jsonl. SmolLM2-135M-Instruct without the layers
[12, 19), calibrated on 64 x 512 tokens of C4 train; training on 64 x 512 further ones, held out 8 x 512;
perplexity over 24 windows of 512 of C4 validation. bfloat16, in half the time of float32. What is finished
is in the cache, steps of a stopped training included, so a run that was stopped goes on where it was. At
the end the table in docs/finetune.md is written anew.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from ghosted_cli.request import cache_folder
from ghosted_core.calibration import Calibrated, repair
from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.corpora import CORPORA, corpus_windows
from ghosted_core.data import Windows, batches
from ghosted_core.distillation.finetuning import finetune
from ghosted_core.evaluate.perplexity import perplexities
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.families import family_of
from ghosted_core.model.surgery import repaired_model
from ghosted_core.plan import PruningPlan
from ghosted_core.quality import Repair
from ghosted_core.recorder import Event, Logged
from ghosted_core.recovery import RecoveryOperator
from ghosted_core.recovery.folding import folded_tensors
from ghosted_core.spec import JobSpec
from ghosted_core.stage_cache import FolderStageCache
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.keys import circumstances
from ghosted_core.texts import Texts, read_texts

MODEL = "smollm2-135m-instruct"
REMOVED = range(12, 19)
SEQUENCES, LENGTH, HELD_OUT, WINDOWS = 64, 512, 8, 24
FILES = {"c4": "c4/c4_en_validation_first1025.jsonl"}
TRAINING = "c4/c4_en_train_first1041.jsonl"
REPORT = Path(__file__).parents[1] / "docs" / "finetune.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Row:
    """A repair, and how it is trained; without settings it is not."""

    name: str
    recovery: str
    settings: Mapping[str, Any] | None = field(default=None)

    @property
    def finetune(self) -> dict[str, Any]:
        """The settings of the spec; the prototype's where the row says nothing else."""
        common = {"sequences": SEQUENCES, "held_out_sequences": HELD_OUT, "patience": 100}
        return {**common, "schedule": "constant", **(self.settings or {})}


ONE = {"epochs": 1}
COSINE = {**ONE, "schedule": "cosine", "learning_rate": 1e-3}
# The first ones tell most for the time that they take.
ROWS = (
    Row("ghosted", "ghosted"),
    Row("ghosted, 1 epoch", "ghosted", ONE),
    Row("ghosted, 1 epoch, cosine, 1e-3", "ghosted", COSINE),
    Row("linear_patch_rotate", "linear_patch_rotate"),
    Row("linear_patch_rotate, 1 epoch, cosine, 1e-3", "linear_patch_rotate", COSINE),
    Row("none", "none"),
    Row("none, down_proj, 1 epoch, cosine, 1e-3", "none", {**COSINE, "trainable": "down_proj"}),
    Row(
        "ghosted, 1 epoch, cosine, 1e-3, operator+down_proj",
        "ghosted",
        {**COSINE, "trainable": "operator+down_proj"},
    ),
    Row("ghosted, 1 epoch, cosine, 3e-3", "ghosted", {**COSINE, "learning_rate": 3e-3}),
    Row("ghosted, 4 epochs", "ghosted", {"epochs": 4}),
    Row("ghosted, 4 epochs, cosine, 1e-3", "ghosted", {**COSINE, "epochs": 4}),
    Row("ghosted, 1 epoch, cosine, 1e-3, CE 0.2", "ghosted", {**COSINE, "cross_entropy": 0.2}),
    Row("ghosted, 1 epoch, cosine, 1e-3, T 2", "ghosted", {**COSINE, "temperature": 2.0}),
    Row("replace_me", "replace_me"),
    Row("replace_me, down_proj, 4 epochs", "replace_me", {"epochs": 4, "trainable": "down_proj"}),
    Row("none, down_proj, 4 epochs", "none", {"epochs": 4, "trainable": "down_proj"}),
    Row("linear_patch_rotate, 4 epochs", "linear_patch_rotate", {"epochs": 4}),
    Row("ghosted, 4 epochs, operator+down_proj", "ghosted", {"epochs": 4, "trainable": "operator+down_proj"}),
)


class Notebook:
    """Finished rows in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, key: str, value: Any) -> None:
        """The row is on the disk."""
        self.entries[key] = value
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self.entries, indent=1))
        beside.replace(self._path)


class Printer:
    """What the stages say, on the terminal."""

    def record(self, event: Event) -> None:
        """Print a sentence."""
        if isinstance(event, Logged):
            print(f"  {event.message}", flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Says what the body took."""
    started, cpu = time.monotonic(), time.process_time()
    yield
    took = f"{time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU"
    print(f"{what}: {took}", flush=True)


class Bench:
    """The model, the texts, and what is known already."""

    def __init__(self, data: Path, cache: Path, dtype: Literal["float32", "bfloat16"]) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.cache = cache
        self.dtype = dtype
        self._data = data
        self.notebook = Notebook(cache / f"finetune-bench-{dtype}.json")
        self._catalog = builtin_catalog()

    @cached_property
    def source(self) -> ModelSource:
        """The model's files."""
        return resolve(
            self.job(ROWS[0]).model, catalog=self._catalog, cache=self.cache, hub_token=None, log=print
        )

    @cached_property
    def dense(self) -> PreTrainedModel:
        """The unpruned model."""
        return load_model(self.source, dtype=self.dtype, device="cpu")

    @cached_property
    def plan(self) -> PruningPlan:
        """The cut."""
        return PruningPlan.from_removed(REMOVED, layer_count=self.dense.config.num_hidden_layers)

    @cached_property
    def corpora(self) -> dict[str, Windows]:
        """What perplexity is measured on."""
        return {
            name: corpus_windows(
                CORPORA[name],
                self._data / file,
                load_tokenizer(self.source),
                length=LENGTH,
                count=WINDOWS,
                vocab_size=self.dense.config.vocab_size,
            )
            for name, file in FILES.items()
        }

    def job(self, row: Row) -> JobSpec:
        """The row's spec."""
        dataset = {"kind": "local", "path": str(self._data / TRAINING)}
        return JobSpec.model_validate(
            {
                "model": MODEL,
                "strategy": {"name": "explicit", "indices": list(REMOVED)},
                "recovery": row.recovery,
                "calibration": {
                    "dataset": dataset,
                    "sequences": SEQUENCES,
                    "sequence_length": LENGTH,
                    "held_out_sequences": 2,
                },
                "evaluation": None,
                "dtype": self.dtype,
                "finetune": None if row.settings is None else row.finetune,
            }
        )

    def measure(self, row: Row) -> None:
        """The row is in the notebook."""
        key = f"{row.name} {self.job(row).digest()[:12]}"
        if key in self.notebook.entries:
            return
        spec = self.job(row)
        with timed(row.name):
            found, report = self._repaired(spec)
            model = repaired_model(self.dense, self.plan, found.corrections, found.replaced)
            figures = self.perplexities({"x": model})["x"]
        self.notebook.put(key, {"perplexity": figures, "report": report})
        print(f"  {row.name}: {figures}", flush=True)

    def _repaired(self, spec: JobSpec) -> tuple[Repair, dict[str, Any] | None]:
        printer, meter = Printer(), ProcessMeter(torch.device("cpu"))
        stages = FolderStageCache(self.cache / "finetune-stages")
        keeping = Keeping(stages, circumstances(self.source, self.dense), printer)
        job = Calibrated(self.dense, self._texts(spec), self.cache, keeping)
        outcomes = repair(spec.recovery, job, self.plan, printer, meter)
        corrections = {o.boundary: o.correction for o in outcomes if isinstance(o, RecoveryOperator)}
        folded = folded_tensors(self.dense, family_of(self.dense.config.model_type), self.plan, outcomes)
        found = Repair(corrections, folded)
        if spec.finetune is None:
            return found, None
        trained = finetune(spec.finetune, job, self.plan, found, printer, meter)
        return trained.repair, trained.report

    def _texts(self, spec: JobSpec) -> Texts:
        return read_texts(
            spec,
            load_tokenizer(self.source),
            vocab_size=self.dense.config.vocab_size,
            catalog=self._catalog,
            cache=self.cache,
            log=print,
        )

    def perplexities(self, models: Mapping[str, PreTrainedModel]) -> dict[str, dict[str, float]]:
        """By model and corpus."""
        found: dict[str, dict[str, float]] = {name: {} for name in models}
        for corpus, windows in self.corpora.items():
            for name, one in perplexities(self.dense, models, batches(windows), lambda _: None).items():
                found[name][corpus] = one.value
        return found


def table(bench: Bench, only: list[str]) -> str:
    """Every row, measured now or before."""
    if "dense" not in bench.notebook.entries:
        with timed("dense"):
            figures = bench.perplexities({"dense": bench.dense})["dense"]
        bench.notebook.put("dense", {"perplexity": figures, "report": None})
    rows = [row for row in ROWS if not only or row.name in only]
    for row in rows:
        bench.measure(row)
    lines = [
        "| start and training | C4 perplexity | held-out KL | steps (best) | seconds |",
        "|---|---|---|---|---|",
        _line("dense", bench.notebook.entries["dense"]),
    ]
    known = {row.name: f"{row.name} {bench.job(row).digest()[:12]}" for row in ROWS}
    entries = bench.notebook.entries
    lines += [_line(name, entries[key]) for name, key in known.items() if key in entries]
    return "\n".join(lines)


def _line(name: str, entry: Mapping[str, Any]) -> str:
    perplexity, report = entry["perplexity"], entry["report"]
    told = f"| {name} | {perplexity['c4']:.2f} |"
    if report is None:
        return f"{told} | | |"
    kl = f"{report['held_out_kl_before']:.4f} -> {report['held_out_kl']:.4f}"
    return f"{told} {kl} | {report['steps']} ({report['best_step']}) | {report['seconds']:.0f} |"


def main() -> None:
    """Measure what is missing, then write the table between its marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    arguments = parser.parse_args()
    bench = Bench(arguments.data, cache_folder(arguments.cache), arguments.dtype)
    text = table(bench, arguments.only)
    print(text)
    written = REPORT.read_text() if REPORT.exists() else f"# Light distillation\n\n{BEGIN}\n{END}\n"
    before, _, rest = written.partition(BEGIN)
    told = f"{text}\n\n{arguments.dtype}, {torch.get_num_threads()} threads."
    REPORT.write_text(f"{before}{BEGIN}\n{told}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
