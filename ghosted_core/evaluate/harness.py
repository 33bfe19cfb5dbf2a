"""lm-evaluation-harness, as far as it is needed. Only the process that runs it may import this."""

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from ghosted_core.batching import batch_size
from ghosted_core.errors import TaskDataError, UnknownTaskError
from ghosted_core.evaluate.task_data import local_files
from ghosted_core.evaluate.task_protocol import Score
from ghosted_core.evaluate.task_splits import over_splits
from ghosted_core.spec import HarnessTask

# The harness's own. Examples for few-shot prompts, and all else that it draws, are always the same.
SEED = 1234
# Of metrics that are no mean; the standard error of a mean has a formula.
BOOTSTRAPS = 1000
# The harness's filter of answers that are taken as they are.
PLAIN = "none"


@dataclass(frozen=True)
class LoadedTask:
    """A task with its data: how many items it has, which files they are from, which metrics it will have.

    `metrics` is None where functions of the task's own name them.
    """

    task: HarnessTask
    loaded: Any
    items: int
    origin: Mapping[str, Any]
    metrics: tuple[str, ...] | None


def load_tasks(tasks: Iterable[HarnessTask], data: Path) -> list[LoadedTask]:
    """All of `tasks` with their items, from files in the folder `data`.

    Raises:
        UnknownTaskError: the installed harness has no task of that name.
        TaskDataError: its items cannot be had.
    """
    manager = TaskManager()
    return [_load(manager, task, data) for task in tasks]


def run_task(
    loaded: LoadedTask, model: "BoundedModel", variant: str, advance: Callable[[float], None]
) -> list[Score]:
    """All figures of the task. `advance` is told of shares of its requests that are done.

    However often it is run, the requests are the same.
    """
    model.watch(advance)
    _seed(loaded.loaded)
    found: Any = evaluator.evaluate(
        lm=model,
        task_dict=loaded.loaded,
        limit=loaded.task.limit,
        log_samples=False,
        bootstrap_iters=BOOTSTRAPS,
    )
    return [
        Score(variant=variant, **figure, detail=_detail(loaded, name, found) | stated)
        for name, figures in found["results"].items()
        for figure, stated in _figures(name, figures, found["higher_is_better"].get(name, {}))
    ]


class BoundedModel(HFLM):  # type: ignore[misc]
    """A model whose batches are as large as a bound on their logits allows, and that tells its progress.

    Logits take batch x length x vocabulary x 4 bytes. The longest request decides the length.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, logit_bytes: int) -> None:
        super().__init__(pretrained=model, tokenizer=tokenizer, batch_size=1, backend="causal")
        self._bound = logit_bytes
        self._rows = model.config.get_text_config().vocab_size
        self._advance: Callable[[float], None] = lambda _share: None
        # The harness tells this of every request that is answered.
        self.set_cache_hook(self)

    def watch(self, advance: Callable[[float], None]) -> None:
        """From now on `advance` is told of shares of the requests that are done."""
        self._advance = advance

    def add_partial(self, _kind: str, _request: Any, _answer: Any) -> None:
        """One more request is answered."""
        self._answered += 1
        self._advance(self._answered / self._asked)

    def loglikelihood(self, requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """As the harness does it, counted."""
        self._count(requests)
        return super().loglikelihood(requests, *args, **kwargs)

    def loglikelihood_rolling(self, requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """As the harness does it, counted."""
        self._count(requests)
        self.batch_size_per_gpu = batch_size(self.max_length, self._rows, self._bound)
        return super().loglikelihood_rolling(requests, *args, **kwargs)

    def generate_until(self, requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """As the harness does it, counted."""
        self._count(requests)
        self.batch_size_per_gpu = batch_size(self.max_length, self._rows, self._bound)
        return super().generate_until(requests, *args, **kwargs)

    def _count(self, requests: Sequence[Any]) -> None:
        self._asked, self._answered = len(requests), 0

    def _loglikelihood_tokens(self, requests: Any, *_args: Any, **_kwargs: Any) -> Any:
        longest = max((len(context) + len(ending) for _, context, ending in requests), default=1)
        length = min(longest, self.max_length)
        self.batch_size_per_gpu = batch_size(length, self._rows, self._bound)
        return super()._loglikelihood_tokens(requests, disable_tqdm=True)


def _load(manager: TaskManager, task: HarnessTask, data: Path) -> LoadedTask:
    entry = manager.task_index.get(task.name)
    if entry is None:
        raise UnknownTaskError(f"lm-evaluation-harness {version('lm_eval')} has no task '{task.name}'.")
    wanted, origin = _with_files(entry, task.name, data)
    loaded = _loaded(manager, wanted, task)
    # Groups are refused: it is a single one.
    (one,) = loaded["tasks"].values()
    one.set_config(key="num_fewshot", value=task.shots)
    _check_shots(one, task)
    count = len(one.eval_docs)
    items = count if task.limit is None else min(task.limit, count)
    return LoadedTask(task, loaded, items, origin, _metrics(one))


def _metrics(one: Any) -> tuple[str, ...] | None:
    named = [entry["metric"] for entry in one.config.metric_list or ()]
    if one.config.process_results is not None or any(callable(metric) for metric in named):
        return None
    forms = [each["name"] for each in one.config.filter_list or ({"name": PLAIN},)]
    return tuple(_in_form(metric, form) for metric in one.aggregation() for form in forms)


def _check_shots(one: Any, task: HarnessTask) -> None:
    if task.shots and task.shots > (there := _examples(one)):
        raise TaskDataError(
            f"There are {there} examples for each prompt of task '{task.name}', not {task.shots}.",
            advice="Ask for fewer shots, or add rows to the file that the examples are from.",
        )


def _examples(one: Any) -> int:
    """As many as there are for any question."""
    pool = one.sampler.df if hasattr(one, "sampler") else ()
    # By this the harness decides whether it leaves out the question, and all rows that are the same.
    leaves_out = one.fewshot_cfg.split == one.config.test_split
    return len(pool) - (max(Counter(map(repr, pool)).values(), default=0) if leaves_out else 0)


def _seed(loaded: Any) -> None:
    """What the harness draws from now on does not depend on what it drew before."""
    set_seed(SEED)
    for one in loaded["tasks"].values():
        one.set_fewshot_seed(seed=SEED)


def _loaded(manager: TaskManager, wanted: Any, task: HarnessTask) -> Any:
    set_seed(SEED)
    with _translated(task.name):
        return manager.load([wanted])


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    # The harness and its data sets raise whatever they like for data that is not there.
    except Exception as error:
        raise TaskDataError(
            f"The items of task '{name}' cannot be loaded ({type(error).__name__})."
        ) from error


def _with_files(entry: Any, name: str, data: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The task's configuration with its data set in files of the folder `data`, and which those are."""
    if entry.yaml_path is None:
        raise TaskDataError(f"Task '{name}' is not described by a file, so it cannot read files.")
    # Its functions stay names at first: the modules that they are in may ask the network when imported.
    _check_kind(name, load_yaml(entry.yaml_path, resolve_func=False))
    with _translated(name):
        settings = dict(load_yaml(entry.yaml_path, resolve_func=True))
    files = local_files(data, name, settings["dataset_path"], settings.get("dataset_name"))
    settings["dataset_path"] = files.kind
    settings["dataset_name"] = None
    data_files = {split: [str(path) for path in paths] for split, paths in files.splits}
    settings["dataset_kwargs"] = {"data_files": data_files}
    if callable(prepare := settings.get("process_docs")):
        # Some shuffle answers, anew whenever they are called: for what is asked, for what is scored and for
        # examples. Called once, these are the same.
        settings["process_docs"] = functools.cache(prepare)
    return over_splits(settings, data_files), {"files": files.fingerprints}


def _check_kind(name: str, settings: Mapping[str, Any]) -> None:
    if "dataset_path" not in settings or "class" in settings:
        refused = "is a group or a program of the harness"
    elif settings.get("custom_dataset"):
        # Its functions would be called instead of reading the files whose hashes we record.
        refused = "makes its items by a program"
    elif settings.get("unsafe_code", False) is not False:
        refused = "runs programs that the model writes"
    elif settings.get("doc_to_image") or settings.get("doc_to_audio"):
        refused = "shows images or plays sounds to the model"
    else:
        return
    raise TaskDataError(
        f"Task '{name}' {refused}.", advice="Name single tasks that are text and nothing else."
    )


def _figures(
    name: str, figures: Mapping[str, Any], directions: Mapping[str, Any]
) -> Iterable[tuple[dict[str, Any], dict[str, bool]]]:
    """Each with whether higher is better, if the harness says so.

    It calls figures METRIC,FILTER and METRIC_stderr,FILTER.
    """
    for key, value in figures.items():
        metric, separator, form = key.partition(",")
        if not separator or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        error = figures.get(f"{metric}_stderr,{form}")
        figure = {
            "task": name,
            "metric": _in_form(metric, form),
            "value": float(value),
            "standard_error": _finite(error),
        }
        direction = directions.get(metric)
        yield figure, {"higher_is_better": direction} if isinstance(direction, bool) else {}


def _in_form(metric: str, form: str) -> str:
    """The metric's name of answers that a filter of the harness brought into that form."""
    return metric if form == PLAIN else f"{metric}_{form}"


def _finite(value: Any) -> float | None:
    """The harness says N/A where it knows no standard error."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _detail(loaded: LoadedTask, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    samples = found.get("n-samples", {}).get(name, {})
    return {
        "harness": f"lm-evaluation-harness {version('lm_eval')}",
        "task_version": str(found.get("versions", {}).get(name, "")),
        "shots": loaded.task.shots,
        "limit": loaded.task.limit,
        "items": samples.get("effective"),
        **loaded.origin,
    }
