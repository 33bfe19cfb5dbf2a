"""What `results.py` measures: the models, the texts, how much of everything."""

from dataclasses import dataclass, field
from typing import Any

MODEL = "smollm2-135m-instruct"
DENSE, NONE = "dense", "none"
GHOSTED = "ghosted"
CORPORA = {
    "wikitext2": "wikitext2/wikitext2_raw_test.jsonl",
    "c4": "c4/c4_en_validation_first1025.jsonl",
    "ptb": "ptb/ptb.valid.txt",
}
# How much each token counts in a fit.
UNIFORM, INVERSE_NORM = "uniform", "inverse_norm"
# What calibrates: a file below the data folder, or an alias of the catalog.
C4, WIKITEXT, BOOLQ = "c4", "wikitext2", "boolq"
CALIBRATION = {C4: "c4/c4_en_train_first1041.jsonl", WIKITEXT: None, BOOLQ: "boolq-passages"}
# Articles behind those that perplexity is measured on: the first windows end within the tenth of 62.
PAGES, FIRST_PAGE = "wikitext2/wikitext2_raw_test_pages.jsonl", 31
# Tokens of the first 100 items of each task with this tokenizer, all answers, by which time is foretold.
TASK_TOKENS = {
    "arc_easy": 13_000,
    "arc_challenge": 15_000,
    "hellaswag": 40_000,
    "winogrande": 5_000,
    "boolq": 17_000,
    "openbookqa": 7_000,
    "rte": 9_000,
    "copa": 3_000,
    "race": 180_000,
}


@dataclass(frozen=True)
class Variant:
    """A model of the tables: without `count` layers, repaired by `repair`, on `sequences` of `text`.

    `is_main`: tasks, continuations and speed are measured too, not only perplexity.
    """

    repair: str
    count: int = 7
    sequences: int = 64
    text: str = C4
    weighting: str = UNIFORM
    trained: bool = False
    is_main: bool = False

    @property
    def name(self) -> str:
        """As in the notebook."""
        if self.repair == DENSE:
            return DENSE
        if self.repair == NONE:
            return f"{NONE}-{self.count}"
        weighting = "" if self.weighting == UNIFORM else f"-{self.weighting}"
        trained = "-finetuned" if self.trained else ""
        return f"{self.repair}-{self.count}-{self.text}-{self.sequences}{weighting}{trained}"

    @property
    def is_fitted(self) -> bool:
        """Whether it has a repair."""
        return self.repair not in {DENSE, NONE}


@dataclass(frozen=True)
class Setting:
    """How much of everything. Windows are measured `chunk` at a time: what a kill may lose."""

    length: int = 512
    windows: int = 48
    chunk: int = 8
    fitted: int = 64
    held_out: int = 8
    sweep: tuple[int, ...] = (8, 16, 32, 64, 128)
    limit: int = 100
    tasks: tuple[str, ...] = tuple(TASK_TOKENS)
    prompts: tuple[str, ...] = (
        "The capital of France is",
        "Write two sentences about the sea.",
        "Explain why the sky is blue.",
        "Give me three tips for staying healthy.",
        "What is 12 plus 30?",
    )
    new_tokens: int = 64
    prompt_tokens: int = 512
    decoded: int = 32
    rounds: int = 7
    finetune: dict[str, Any] = field(default_factory=dict)
    counts: tuple[int, ...] = (3, 7, 11)

    def variants(self, *, finetune: bool) -> tuple[Variant, ...]:
        """All models, the main ones first."""
        at = {"sequences": self.fitted}
        main = [
            Variant(DENSE, 0, is_main=True),
            Variant(NONE, is_main=True),
            *(
                Variant(repair, is_main=True, **at)
                for repair in ("linear_patch_rotate", "replace_me", GHOSTED)
            ),
            *([Variant(GHOSTED, trained=True, is_main=True, **at)] if finetune else []),
            *(Variant(GHOSTED, count, is_main=True, **at) for count in self.counts if count != Variant.count),
        ]
        more = [
            *(Variant(NONE, count) for count in self.counts if count != Variant.count),
            # The largest cut takes along the layer that writes a massive activation into first tokens.
            Variant(GHOSTED, max(self.counts), weighting=INVERSE_NORM, **at),
            *(Variant(GHOSTED, sequences=count) for count in self.sweep if count != self.fitted),
            *(Variant(GHOSTED, text=text, **at) for text in CALIBRATION if text != C4),
        ]
        return (*main, *more)


FULL = Setting()
# Enough to see that everything runs; no figure of it means anything.
QUICK = Setting(
    length=64,
    windows=2,
    chunk=1,
    fitted=4,
    held_out=2,
    sweep=(2, 4, 6),
    limit=2,
    tasks=("copa", "openbookqa"),
    prompts=("The capital of France is",),
    new_tokens=4,
    prompt_tokens=16,
    decoded=2,
    rounds=1,
    finetune={"sequences": 4, "held_out_sequences": 2, "epochs": 1},
)
