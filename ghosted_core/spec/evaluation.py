"""What is measured of a job's models, and what must not be lost."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from ghosted_core.spec.base import Frozen, Integer, Number, read_named, read_switch
from ghosted_core.spec.references import CatalogText, TextReference

# How each named corpus becomes one text is part of its name; see `ghosted_core.corpora`.
NAMED_CORPORA = ("wikitext2", "ptb", "c4")
_CATALOG = {"wikitext2": "wikitext2-test", "c4": "c4-validation"}
METRIC = r"^[a-z0-9][a-z0-9_.]{0,127}$"
# What is always measured where there are text and prompts; tasks and corpora add their own.
TEXT_METRICS = frozenset({"perplexity", "nll"})
DAMAGE_RATIO = "damage_ratio"
LIKENESS_METRICS = frozenset({"kl", "next_token_agreement"})
GENERATION_METRICS = frozenset({"distinct_1", "distinct_2", "distinct_3", "longest_repeat"})
LATENCY_METRICS = frozenset(
    {
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "first_token_seconds",
        "peak_memory_bytes",
        "weight_bytes",
    }
)

Prompt = Annotated[str, StringConstraints(min_length=1, max_length=2000)]


class PerplexityCorpus(Frozen):
    """A text in its own order, in windows from its start: figures that compare with published ones.

    `wikitext2`, `ptb` and `c4` are joined as the field does it. Any other name stands for the
    documents of `dataset`, joined by blank lines. Without a `dataset`, wikitext2 and c4 are those of
    the catalog; ptb may not be redistributed, so its file has to be given.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]{0,31}$")]
    dataset: TextReference | None = None
    windows: Annotated[Integer, Field(ge=1, le=65536)] | Literal["all"] | None = Field(
        default=None, description="'all' there are; None: as the evaluation's 'windows', 16 if those are 0."
    )
    sequence_length: Integer | None = Field(default=None, ge=2, le=1_048_576)

    @model_validator(mode="after")
    def _has_text(self) -> "PerplexityCorpus":
        if self.dataset is None and self.name not in _CATALOG:
            raise ValueError(f"corpus '{self.name}' needs a 'dataset': the file that holds it")
        return self

    @property
    def text(self) -> TextReference:
        """Where its text is."""
        return self.dataset if self.dataset is not None else CatalogText(alias=_CATALOG[self.name])


class HarnessTask(Frozen):
    """A task of lm-evaluation-harness: `limit` takes its first items only."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}$")]
    shots: Integer = Field(default=0, ge=0, le=64)
    limit: Integer | None = Field(default=None, ge=1, le=10_000_000)

    @property
    def key(self) -> str:
        """Its name as part of a metric's name."""
        return metric_key(self.name)


class Bound(Frozen):
    """What a metric of the result may be, relative to the dense model's or by itself.

    `max_ratio` and `min_ratio` bound result / dense, `max_rise` result - dense and `max_drop`
    dense - result; `max` and `min` bound the result itself.
    """

    metric: Annotated[str, StringConstraints(pattern=METRIC)]
    max_ratio: Number | None = Field(default=None, gt=0)
    min_ratio: Number | None = Field(default=None, gt=0)
    max_rise: Number | None = Field(default=None, ge=0)
    max_drop: Number | None = Field(default=None, ge=0)
    max: Number | None = None
    min: Number | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> "Bound":
        if not self.limits:
            raise ValueError(f"the bound on '{self.metric}' says no limit, such as 'max_ratio: 1.5'")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by name."""
        return self.model_dump(exclude={"metric"}, exclude_none=True)


class Latency(Frozen):
    """How fast the models are on the machine at hand, and how much memory they take there.

    In each of `rounds`, after one that does not count, every model has its turn: it reads
    `prompt_tokens` (at most as many as it can), then makes `new_tokens` more, one sequence at a time.
    """

    prompt_tokens: Integer = Field(default=128, ge=1, le=1_048_576)
    new_tokens: Integer = Field(default=32, ge=1, le=4096)
    rounds: Integer = Field(default=5, ge=1, le=100)


LatencyChoice = Annotated[
    Latency | None, BeforeValidator(read_switch, json_schema_input_type=bool | Latency | None)
]


def metric_key(text: str) -> str:
    """`text` as part of a metric's name: lower case, with nothing but letters, digits, points and _."""
    return text.lower().replace("-", "_")


class Evaluation(Frozen):
    """What is measured on the dense, the pruned and the repaired model.

    `windows` of `dataset` (0: none); without a `dataset` of its own it takes documents of the
    calibration set that calibration never sees. Then the `corpora`, `prompts` to go on from, and
    `tasks`. Prompts go through the model's chat template where it has one and `template` is auto.
    `latency` is a matter of the machine, and is measured only if asked for.

    A metric beyond its bound in `gate`, or any that is not finite, fails the job; `on_miss`
    says whether the checkpoint is kept for a look at it.
    """

    dataset: TextReference | None = None
    windows: Integer = Field(default=16, ge=0, le=65536)
    sequence_length: Integer | None = Field(default=None, ge=2, le=1_048_576)
    corpora: tuple[Annotated[PerplexityCorpus, BeforeValidator(read_named)], ...] = Field(
        default=(), max_length=16
    )
    prompts: tuple[Prompt, ...] = Field(
        default=("The capital of France is", "Water boils when"), max_length=16
    )
    new_tokens: Integer = Field(default=24, ge=1, le=512)
    template: Literal["auto", "none"] = "auto"
    tasks: tuple[Annotated[HarnessTask, BeforeValidator(read_named)], ...] = Field(default=(), max_length=64)
    # Left out where nothing is timed: such a spec reads and digests as it did before.
    latency: LatencyChoice = Field(default=None, exclude_if=lambda latency: latency is None)
    gate: tuple[Bound, ...] = Field(default=(), max_length=64)
    on_miss: Literal["withhold", "keep"] = "withhold"

    @model_validator(mode="after")
    def _names_differ(self) -> "Evaluation":
        for kind, names in (
            ("corpora", [corpus.name for corpus in self.corpora]),
            ("tasks", [task.key for task in self.tasks]),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"'{kind}' names one more than once")
        return self

    @model_validator(mode="after")
    def _bounds_what_is_measured(self) -> "Evaluation":
        for bound in self.gate:
            if not self.measures(bound.metric):
                raise ValueError(f"the gate bounds '{bound.metric}', which this evaluation does not measure")
            relative = [limit for limit in bound.limits if limit not in {"max", "min"}]
            if relative and bound.metric in LIKENESS_METRICS | {DAMAGE_RATIO}:
                raise ValueError(
                    f"the gate bounds '{bound.metric}' by '{relative[0]}', but the dense model has no such "
                    "figure; use 'max' or 'min'"
                )
        return self

    @property
    def usual_windows(self) -> int:
        """How many windows a corpus has that does not say: as many as the evaluation's own text.

        Where that has none, as many as it would have by default; the whole of a corpus is 'all'.
        """
        return self.windows or int(Evaluation.model_fields["windows"].default)

    @property
    def texts(self) -> Iterator[tuple[str, TextReference]]:
        """The texts that are named, with where in the evaluation."""
        if self.dataset is not None:
            yield "dataset", self.dataset
        for index, corpus in enumerate(self.corpora):
            if corpus.dataset is not None:
                yield f"corpora.{index}.dataset", corpus.dataset

    def measures(self, metric: str) -> bool:
        """Whether a metric of that name can come out; of tasks, only the ending is known before."""
        if any(metric.endswith(f"_{task.key}") for task in self.tasks):
            return True
        return metric in self._measured

    @property
    def bounded_of_tasks(self) -> tuple[str, ...]:
        """Metrics in the gate that only tasks can have."""
        return tuple(bound.metric for bound in self.gate if bound.metric not in self._measured)

    @property
    def _measured(self) -> frozenset[str]:
        named = {f"{metric}_{corpus.name}" for metric in TEXT_METRICS for corpus in self.corpora}
        own = TEXT_METRICS | {DAMAGE_RATIO} if self.windows else frozenset()
        likeness = LIKENESS_METRICS if self.windows or self.corpora else frozenset()
        generation = GENERATION_METRICS if self.prompts else frozenset()
        timed = LATENCY_METRICS if self.latency is not None else frozenset()
        return frozenset(named) | own | likeness | generation | timed
